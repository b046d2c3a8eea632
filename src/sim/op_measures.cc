#include "sim/op_measures.h"

#include <algorithm>
#include <numeric>
#include <variant>

#include "latency/least_squares.h"

namespace tandem::sim {
namespace {

constexpr double kBucket = 1.04;        // amounts that differ by less are one point
constexpr size_t kMostOfAmount = 4096;  // times kept
constexpr size_t kMostAttended = 200'000;
constexpr size_t kMostEquations = 4000;

// Without the longest tenth.
double trimmed_mean(std::vector<float>& times) {
  const size_t kept = times.size() - times.size() / 10;
  std::ranges::sort(times);
  return std::accumulate(times.begin(), times.begin() + static_cast<int64_t>(kept), 0.0) /
         static_cast<double>(kept);
}

}  // namespace

void OpMeasures::add(const device::Op& op, Nanos time) {
  const auto nanos = static_cast<float>(time.count());
  const std::lock_guard lock(mutex_);
  if (const auto* attend = std::get_if<device::AttentionOp>(&op)) {
    if (attended_.size() < kMostAttended) {
      attended_.push_back({.features = features_of(*attend), .nanos = nanos});
    }
    return;
  }
  std::vector<float>& times = times_[device::key_of(op)][device::amount_of(op)];
  if (times.size() < kMostOfAmount) {
    times.push_back(nanos);
  }
}

void OpMeasures::clear() {
  const std::lock_guard lock(mutex_);
  times_.clear();
  attended_.clear();
}

device::OpTable OpMeasures::table() const {
  device::OpTable table;
  for (const auto& [key, times] : times_) {
    device::OpLine line{.key = key};
    for (auto from = times.begin(); from != times.end();) {
      std::vector<float> together;
      double amounts = 0;
      auto to = from;
      for (; to != times.end() &&
             static_cast<double>(to->first) <= static_cast<double>(from->first) * kBucket;
           ++to) {
        together.insert(together.end(), to->second.begin(), to->second.end());
        amounts += static_cast<double>(to->first) * static_cast<double>(to->second.size());
      }
      const auto amount =
          static_cast<int64_t>(amounts / static_cast<double>(together.size()) + 0.5);
      line.points.push_back({.amount = amount, .nanos = trimmed_mean(together)});
      from = to;
    }
    table.lines.push_back(std::move(line));
  }
  // Layers of a step repeat each other: every one of them would only take longer to fit.
  const size_t stride = attended_.size() / kMostEquations + 1;
  std::vector<latency::Equation> equations;
  for (size_t i = 0; i < attended_.size(); i += stride) {
    const Attended& one = attended_[i];
    if (one.nanos > 0) {
      equations.push_back(
          {.features = {one.features.begin(), one.features.end()}, .value = one.nanos});
    }
  }
  if (!equations.empty()) {
    const std::vector<double> found = latency::fit_nonnegative(equations, {1000, 100, 100, 1, 1});
    std::ranges::copy(found, table.attention.begin());
  }
  return table;
}

std::array<int64_t, 6> shape_of(const model::ModelConfig& config) {
  return {config.layers, config.hidden,   config.intermediate,
          config.heads,  config.kv_heads, config.vocabulary};
}

}  // namespace tandem::sim
