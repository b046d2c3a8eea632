// What is known about how many tokens answers have, from those that have ended: nobody says it in
// advance. A decaying mean and spread; before there is any experience, a guess of some hundred
// tokens. One owner.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tandem {

class OutputLengths {
 public:
  void observe(int32_t output_tokens) {
    const double rate = std::max(kSlowest, 1 / (kGuessWeighs + static_cast<double>(observed_)));
    ++observed_;
    const double off = output_tokens - mean_;
    mean_ += rate * off;
    variance_ = (1 - rate) * (variance_ + rate * off * off);
  }

  // That an answer of `output_tokens` so far will still get; at most `most`.
  [[nodiscard]] double rest(int32_t output_tokens, int32_t most) const {
    // One that is longer than most of them goes on for a while.
    const double left = std::max(mean_ - output_tokens, mean_ / 4);
    return std::clamp(left, 1.0, std::max(1.0, static_cast<double>(most - output_tokens)));
  }
  [[nodiscard]] double variance() const { return variance_; }

 private:
  static constexpr double kGuess = 256;
  static constexpr double kGuessWeighs = 8;  // as so many answers
  static constexpr double kSlowest = 1.0 / 64;

  double mean_ = kGuess;
  double variance_ = kGuess * kGuess / 4;
  int64_t observed_ = 0;
};

}  // namespace tandem
