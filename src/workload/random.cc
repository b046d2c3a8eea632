#include "workload/random.h"

#include <cmath>
#include <numbers>

#include "base/check.h"

namespace tandem::workload {

namespace {

constexpr uint64_t kStep = 0x9e3779b97f4a7c15;

uint64_t scrambled(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t mixed(uint64_t seed, uint64_t part) {
  return scrambled(scrambled(seed + kStep) + (part + 1) * kStep);
}

uint64_t Random::next() {
  state_ += kStep;
  return scrambled(state_);
}

double Random::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

uint64_t Random::below(uint64_t bound) {
  CHECK(bound > 0, "a draw below {}", bound);
  // The high half of a product; its bias is below 2^-32 for the bounds used here.
  const uint64_t high = next() >> 32;
  return bound <= UINT32_MAX ? (high * bound) >> 32 : next() % bound;
}

double Random::exponential() { return -std::log1p(-uniform()); }

double Random::normal() {
  const double radius = std::sqrt(2 * exponential());
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

// Marsaglia and Tsang (2000); a shape below 1 is drawn from shape + 1.
double Random::gamma(double shape) {
  CHECK(shape > 0, "gamma with shape {}", shape);
  if (shape < 1) {
    const double boost = std::pow(1 - uniform(), 1 / shape);
    return gamma(shape + 1) * boost;
  }
  const double d = shape - 1.0 / 3.0;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal();
    const double v = 1 + c * x;
    if (v <= 0) {
      continue;
    }
    const double cubed = v * v * v;
    if (std::log1p(-uniform()) < 0.5 * x * x + d - d * cubed + d * std::log(cubed)) {
      return d * cubed;
    }
  }
}

}  // namespace tandem::workload
