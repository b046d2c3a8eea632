// Cuts text into the pieces that are tokenized one by one: the "pre_tokenizer" of tokenizer.json
// (Sequence, Split, ByteLevel, Digits, Punctuation, Whitespace, WhitespaceSplit, Metaspace). Not
// here: merging (bpe_model.h). ByteLevel's renaming of bytes is not done: the model works on bytes
// instead (byte_level()). Threads: const and shared.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/pattern.h"

namespace tandem::text {

// Ranges of one text, in order; together they may leave parts of it out.
struct Pieces {
  std::string text;
  std::vector<ByteRange> ranges;

  [[nodiscard]] std::string_view operator[](size_t i) const {
    return std::string_view(text).substr(ranges[i].begin, ranges[i].end - ranges[i].begin);
  }
};

enum class TextPlace { kBeginning, kLater };  // does the text stand first in what the caller gave?

class PreTokenizer {
 public:
  // Leaves every text in one piece.
  PreTokenizer() = default;
  // `value` may be null: one piece.
  static Result<PreTokenizer> parse(const nlohmann::json& value, std::string_view where);
  // Byte level, cut by `pattern` into matches and what lies between them.
  static PreTokenizer byte_level_split(Regex pattern);

  // The pieces are to be tokenized as bytes, not as characters.
  [[nodiscard]] bool byte_level() const { return byte_level_; }
  // The pieces joined are the text, with more spaces perhaps: nothing is removed or replaced.
  [[nodiscard]] bool keeps_text() const;
  // `text` must be valid UTF-8.
  [[nodiscard]] Result<Pieces> apply(std::string text, TextPlace place) const;

 private:
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  struct Split {
    Pattern pattern;
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;
  };
  struct PrefixSpace {};  // ByteLevel with add_prefix_space
  struct Metaspace {
    enum class Prefix { kAlways, kFirst, kNever };
    std::string replacement;  // one character
    Prefix prefix = Prefix::kAlways;
    bool split = true;
  };
  using Step = std::variant<Split, PrefixSpace, Metaspace>;

  Status parse_step(const nlohmann::json& value, std::string_view where);
  Status parse_split(const nlohmann::json& value, std::string_view where);
  Status parse_byte_level(const nlohmann::json& value, std::string_view where);
  Status parse_metaspace(const nlohmann::json& value, std::string_view where);
  Status add_split(std::string_view pattern, Behavior behavior, bool invert);
  static Result<Behavior> parse_behavior(const nlohmann::json& value, std::string_view where);

  static Status run_split(const Split& split, Pieces& pieces);
  static void run_prefix_space(Pieces& pieces);
  static Status run_metaspace(const Metaspace& metaspace, TextPlace place, Pieces& pieces);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

// How the ByteLevel step of GPT-2 cuts text.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace tandem::text
