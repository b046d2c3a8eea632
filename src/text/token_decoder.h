// From a token's spelling to the bytes it adds to a text: the "decoder" of tokenizer.json
// (Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace), as far as it works token by
// token. Not here: streaming (detokenizer.h). Threads: const and shared.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/pattern.h"
#include "text/tokenizer.h"

namespace tandem::text {

enum class TokenOrigin { kModel, kAdded };

class TokenDecoder {
 public:
  static Result<TokenDecoder> parse(const nlohmann::json& value, std::string_view where);
  static TokenDecoder byte_level();

  // The spelling of an added token is not byte level even where the model's tokens are. Needs valid
  // UTF-8.
  [[nodiscard]] Result<std::string> bytes(std::string_view token, TokenOrigin origin) const;

  // Of the whole text, at its beginning.
  [[nodiscard]] int32_t stripped_leading_spaces() const { return stripped_leading_spaces_; }
  [[nodiscard]] InvalidBytes invalid_bytes() const { return invalid_bytes_; }

 private:
  struct ByteLevel {};
  struct ByteFallback {};
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Strip {  // of each token
    std::string content;
    int64_t start = 0;
    int64_t stop = 0;
  };
  using Step = std::variant<ByteLevel, ByteFallback, Replace, Strip>;

  Status parse_step(const nlohmann::json& value, std::string_view where);
  Status parse_strip(const nlohmann::json& value, std::string_view where);
  Status parse_metaspace(const nlohmann::json& value, std::string_view where);
  Status parse_replace(const nlohmann::json& value, std::string_view where);

  std::vector<Step> steps_;
  bool fused_ = false;  // while parsing: tokens are one text from here on
  int32_t stripped_leading_spaces_ = 0;
  InvalidBytes invalid_bytes_ = InvalidBytes::kOnePerSequence;
};

}  // namespace tandem::text
