#include "text/token_count_bound.h"

#include <algorithm>

namespace tandem::text {
namespace {

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

void TokenCountBound::add(std::string_view bytes) {
  Counts counts{};
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    max_in_token_[byte] = std::max(max_in_token_[byte], ++counts[byte]);
  }
  max_token_bytes_ = std::max<int64_t>(max_token_bytes_, std::ssize(bytes));
}

int64_t TokenCountBound::min_tokens(std::string_view text) const {
  Counts counts{};
  for (const char c : text) {
    ++counts[static_cast<uint8_t>(c)];
  }
  int64_t bound = 0;
  int64_t known_bytes = 0;
  for (size_t byte = 0; byte < counts.size(); ++byte) {
    if (max_in_token_[byte] > 0) {
      known_bytes += counts[byte];
      bound = std::max(bound, divide_up(counts[byte], max_in_token_[byte]));
    }
  }
  return max_token_bytes_ > 0 ? std::max(bound, divide_up(known_bytes, max_token_bytes_)) : bound;
}

}  // namespace tandem::text
