// Token ids and their texts as the model folder spells them. Not here: what they decode to
// (token_bytes.h), merges. Threads: const and shared once filled. Units: ids 0 .. size() - 1, holes
// allowed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace tandem::text {

// The biggest vocabularies in use have a quarter of a million tokens; tables are as long as the
// biggest id.
inline constexpr int64_t kMostTokens = int64_t{1} << 22;

class Vocabulary {
 public:
  // An error where the id is out of range or has another text already. `where` names the file.
  Status add(std::string_view text, int64_t id, std::string_view where);

  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(texts_.size()); }
  [[nodiscard]] bool has(TokenId id) const;
  // Empty for an id that has no token.
  [[nodiscard]] std::string_view text(TokenId id) const;
  // Of several ids with the same text, the one added first.
  [[nodiscard]] std::optional<TokenId> find(std::string_view text) const;

 private:
  std::vector<const std::string*> texts_;  // by id; points to a key of ids_, which never moves
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> ids_;
};

}  // namespace tandem::text
