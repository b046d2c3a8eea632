#include "workload/lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "workload/number.h"

namespace tandem::workload {

namespace {

int32_t clamped(double tokens) {
  return static_cast<int32_t>(std::clamp(std::round(tokens), 1.0, double{kMostTokens}));
}

bool is_length(double tokens) { return tokens >= 1 && tokens <= kMostTokens; }

}  // namespace

Lengths Lengths::fixed(int32_t tokens) { return uniform(tokens, tokens); }

Lengths Lengths::uniform(int32_t low, int32_t high) {
  CHECK(low >= 1 && low <= high, "lengths from {} to {}", low, high);
  Lengths lengths;
  lengths.kind_ = low == high ? Kind::kFixed : Kind::kUniform;
  lengths.a_ = low;
  lengths.b_ = high;
  return lengths;
}

Lengths Lengths::values(std::vector<int32_t> tokens) {
  CHECK(!tokens.empty(), "lengths of {} values", tokens.size());
  Lengths lengths;
  lengths.kind_ = Kind::kValues;
  lengths.values_ = std::make_shared<const std::vector<int32_t>>(std::move(tokens));
  return lengths;
}

Result<Lengths> Lengths::parse(std::string_view text) {
  const auto wrong = [text](std::string_view why) {
    return invalid_argument(
        fmt::format("'{}' is not a length distribution ({}): write 512, uniform:LOW:HIGH, "
                    "normal:MEAN:STD or lognormal:MEAN:STD, in tokens from 1 to {}",
                    text, why, kMostTokens));
  };
  const std::vector<std::string_view> parts = split(text, ':');
  std::string_view name = parts.front();
  std::vector<double> numbers;
  for (size_t i = read_number(name) ? 0 : 1; i < parts.size(); ++i) {
    const std::optional<double> number = read_number(parts[i]);
    if (!number) {
      return wrong(fmt::format("'{}' is not a number", parts[i]));
    }
    numbers.push_back(*number);
  }
  if (read_number(name)) {
    name = "fixed";
  }
  Lengths lengths;
  if (name == "fixed") {
    if (numbers.size() != 1 || !is_length(numbers[0])) {
      return wrong("one length is needed");
    }
    return fixed(clamped(numbers[0]));
  }
  if (numbers.size() != 2) {
    return wrong("two numbers are needed");
  }
  if (name == "uniform") {
    if (!is_length(numbers[0]) || !is_length(numbers[1]) || numbers[0] > numbers[1]) {
      return wrong("the bounds are wrong");
    }
    return uniform(clamped(numbers[0]), clamped(numbers[1]));
  }
  if (name != "normal" && name != "lognormal") {
    return wrong("unknown name");
  }
  if (!is_length(numbers[0]) || !(numbers[1] >= 0 && numbers[1] <= kMostTokens)) {
    return wrong("mean or deviation are out of range");
  }
  lengths.kind_ = name == "normal" ? Kind::kNormal : Kind::kLognormal;
  lengths.a_ = numbers[0];
  lengths.b_ = numbers[1];
  return lengths;
}

int32_t Lengths::draw(Random& random) const {
  switch (kind_) {
    case Kind::kFixed:
      return clamped(a_);
    case Kind::kUniform:
      return static_cast<int32_t>(
          a_ + static_cast<double>(random.below(static_cast<uint64_t>(b_ - a_) + 1)));
    case Kind::kNormal:
      return clamped(a_ + b_ * random.normal());
    case Kind::kLognormal: {
      const double variance = std::log1p((b_ / a_) * (b_ / a_));  // of the logarithm
      return clamped(std::exp(std::log(a_) - variance / 2 + std::sqrt(variance) * random.normal()));
    }
    case Kind::kValues:
      return (*values_)[random.below(values_->size())];
  }
  CHECK(false, "lengths of kind {}", static_cast<int>(kind_));
}

}  // namespace tandem::workload
