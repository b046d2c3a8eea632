// A lower bound of how many tokens a text becomes, from how often each byte stands in one token at
// most: "aaaa..." needs at least as many tokens as its length over the most 'a' of any token. Costs
// one look at each byte. Threads: const and shared once filled.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tandem::text {

class TokenCountBound {
 public:
  // What a token stands for in a text. All tokens must be added.
  void add(std::string_view bytes);
  // However `text` is cut into these tokens, there are at least so many. Bytes that stand in no
  // token are not counted.
  [[nodiscard]] int64_t min_tokens(std::string_view text) const;

 private:
  using Counts = std::array<int64_t, 256>;
  Counts max_in_token_{};
  int64_t max_token_bytes_ = 0;
};

}  // namespace tandem::text
