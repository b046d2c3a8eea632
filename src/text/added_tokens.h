// Tokens that are cut out of a text before anything else happens to it: special tokens, and others
// that a model's makers added to its vocabulary. Threads: const and shared once built.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/int_map.h"
#include "text/regex.h"

namespace tandem::text {

// As tokenizer.json has it, and its defaults.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;
  bool lstrip = false;       // takes the spaces before it along
  bool rstrip = false;       // takes the spaces after it along
  bool single_word = false;  // only where no letter or digit touches it
  bool normalized = false;   // looked for in the normalized text instead of the text as given
};

enum class SpecialTokens { kParse, kLeaveAsText };

// Finds tokens by their content: leftmost first, of those that begin together the longest.
class AddedTokenMatcher {
 public:
  // Later tokens with the same content replace earlier ones. `content` may differ from the token's
  // own (normalized).
  void add(const AddedToken& token, std::string_view content);

  struct Part {
    ByteRange range;
    std::optional<TokenId> token;  // nullopt: text to go on with
  };
  // Cuts `text` (valid UTF-8) into parts in order; no part of text is empty. Stops once it has
  // found more than `max_tokens` tokens.
  [[nodiscard]] std::vector<Part> cut(
      std::string_view text, SpecialTokens special,
      int64_t max_tokens = std::numeric_limits<int64_t>::max()) const;

 private:
  struct Entry {
    TokenId id = 0;
    bool special = false;
    bool lstrip = false;
    bool rstrip = false;
    bool single_word = false;
  };

  struct Found {
    size_t entry = 0;
    size_t end = 0;
  };
  [[nodiscard]] std::optional<Found> longest_at(std::string_view text, size_t begin,
                                                SpecialTokens special) const;

  std::vector<Entry> entries_;
  std::vector<int32_t> entry_of_node_ = {-1};  // node 0 is the root
  IntMap children_;                            // (node, byte) -> node
  std::array<bool, 256> first_bytes_{};        // of any content
};

}  // namespace tandem::text
