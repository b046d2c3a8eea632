// Byte-pair encoding of one piece of text: symbols are merged, the pair of lowest rank first and of
// equal ranks the leftmost, until no pair has a rank. Not here: cutting text into pieces, special
// tokens. Threads: const and shared once built. Time: n log n in the length of the piece.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/int_map.h"
#include "text/token_bytes.h"
#include "text/token_count_bound.h"
#include "text/vocabulary.h"

namespace tandem::text {

struct BpeOptions {
  bool byte_level = false;     // symbols are bytes, spelt as GPT-2 does; otherwise characters
  bool byte_fallback = false;  // a character without a token becomes the tokens of its bytes
  bool fuse_unk = false;       // unknown characters side by side become one unknown token
  bool ignore_merges = false;  // a piece that is a token becomes it whatever the merges say
  std::optional<TokenId> unk_id = std::nullopt;  // without: unknown characters vanish
};

class BpeModel {
 public:
  // `bytes` holds the tokens' bytes by id; both outlive the model.
  BpeModel(const Vocabulary& vocabulary, const TokenBytes& bytes, BpeOptions options);

  // `a` and `b` side by side become `merged`. Replaces an earlier rule for the pair.
  void add_merge(TokenId a, TokenId b, TokenId merged, uint32_t rank);
  void reserve_merges(size_t count) { merges_.reserve(count); }

  // Work space that calls reuse.
  struct Scratch {
    struct Symbol {
      TokenId id = 0;
      uint32_t rank = 0;  // of the pair with the next symbol
      uint32_t previous = 0;
      uint32_t next = 0;
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;
  };
  // `text` becomes at least so many tokens, however it is cut into pieces; 0 if nothing is known.
  [[nodiscard]] int64_t min_tokens(std::string_view text) const {
    return every_byte_has_tokens_ ? bound_.min_tokens(text) : 0;
  }
  // Appends the tokens of `piece` (valid UTF-8 unless byte level; under 4 GiB). Takes at most 28
  // bytes of work space for each byte.
  void encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const;

 private:
  using Symbol = Scratch::Symbol;
  static constexpr TokenId kNoToken = -1;

  void make_symbols(std::string_view piece, std::vector<Symbol>& symbols) const;
  void append_unknown(std::string_view character, std::vector<Symbol>& symbols) const;
  [[nodiscard]] uint32_t rank(TokenId a, TokenId b) const;
  void fill_bound(const Vocabulary& vocabulary);
  void merge_short(std::vector<Symbol>& symbols) const;
  void merge_long(Scratch& scratch) const;

  BpeOptions options_;
  IntMap merges_;  // (a, b) -> rank, merged
  std::array<TokenId, 256>
      byte_ids_{};  // byte level: the symbol of a byte; else its byte-fallback token
  std::array<TokenId, 128> ascii_ids_{};                 // characters, unless byte level
  IntMap char_ids_;                                      // the other characters
  std::unordered_map<std::string_view, TokenId> whole_;  // ignore_merges: a piece's bytes -> token
  TokenCountBound bound_;
  bool every_byte_has_tokens_ = false;  // without, unknown text may vanish or become one token
};

}  // namespace tandem::text
