// How long prompts and answers are: distributions over whole tokens, and how people write them.
// Threads: any (drawing changes only the Random that is passed).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "workload/random.h"

namespace tandem::workload {

inline constexpr int32_t kMostTokens = 10'000'000;  // of one prompt or answer, anywhere

class Lengths {
 public:
  static Lengths fixed(int32_t tokens);
  // Every whole number from low to high is equally likely. Needs 1 <= low <= high.
  static Lengths uniform(int32_t low, int32_t high);
  // The values, each as likely as it is frequent. Must not be empty.
  static Lengths values(std::vector<int32_t> tokens);

  // "512", "fixed:512", "uniform:100:900", "normal:512:128", "lognormal:512:300" (mean and standard
  // deviation of the lengths themselves). Draws below 1 count as 1.
  static Result<Lengths> parse(std::string_view text);

  int32_t draw(Random& random) const;

 private:
  enum class Kind : uint8_t { kFixed, kUniform, kNormal, kLognormal, kValues };
  Kind kind_ = Kind::kFixed;
  double a_ = 1;  // fixed: tokens; uniform: low; normal, lognormal: mean
  double b_ = 0;  // uniform: high; normal, lognormal: standard deviation
  std::shared_ptr<const std::vector<int32_t>> values_;
};

}  // namespace tandem::workload
