// Text to token ids and back: the tokenizer of one model, read from its folder. Not here: chat
// templates, streaming state (detokenizer.h), stop strings (stop_strings.h). Units: ids index the
// model's vocabulary; text is UTF-8. Threads: const and safe to share once loaded. Ownership: views
// that a Tokenizer returns live as long as it does. Errors: invalid UTF-8 and broken files are the
// caller's (Result); an id outside the vocabulary decodes to nothing, because a model's logits may
// be wider than its vocabulary.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/utf8.h"

namespace tandem::text {

struct EncodeOptions {
  bool add_special_tokens = true;  // BOS, EOS or what else the model folder puts around a text
  bool parse_special_tokens =
      false;  // take "<|eot_id|>" in the text as that token instead of as characters
  // A text of more is an error of code kPayloadTooLarge, found as early as its bytes tell: refusing
  // a long text takes far less time and memory than tokenizing it.
  int64_t max_tokens = std::numeric_limits<int64_t>::max();
};

struct DecodeOptions {
  bool skip_special_tokens = true;
};

// What holds for the tokenizer as a whole.
struct TokenizerTraits {
  int32_t vocab_size = 0;                        // one more than the biggest id
  std::optional<TokenId> bos_id = std::nullopt;  // nullopt where the model folder names none
  std::optional<TokenId> eos_id = std::nullopt;
  int32_t stripped_leading_spaces =
      0;  // how many spaces a whole decoded text loses at its beginning
  InvalidBytes invalid_bytes = InvalidBytes::kOnePerSequence;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Time grows as n log n with the text, whatever the text is.
  [[nodiscard]] virtual Result<std::vector<TokenId>> encode(std::string_view text,
                                                            EncodeOptions options) const = 0;

  // What the token adds to a decoded text; may be part of a character. Empty for an id outside the
  // vocabulary.
  [[nodiscard]] virtual std::string_view token_bytes(TokenId id) const = 0;
  [[nodiscard]] virtual bool is_special(TokenId id) const = 0;

  // The id of a token as the model folder spells it ("<|eot_id|>", "Ġthe", "▁the").
  [[nodiscard]] virtual std::optional<TokenId> id_of(std::string_view token) const = 0;
  [[nodiscard]] virtual const TokenizerTraits& traits() const = 0;

  [[nodiscard]] int32_t vocab_size() const { return traits().vocab_size; }
  [[nodiscard]] std::optional<TokenId> bos_id() const { return traits().bos_id; }
  [[nodiscard]] std::optional<TokenId> eos_id() const { return traits().eos_id; }

  // The whole text of `ids`, always valid UTF-8.
  [[nodiscard]] std::string decode(std::span<const TokenId> ids, DecodeOptions options) const;
};

// Reads tokenizer.json, or else tokenizer.model (SentencePiece, or tiktoken text as Llama-3 ships),
// and then tokenizer_config.json and special_tokens_map.json, from a model folder; or what a
// GGUF file holds. The files are not trusted.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> load_tokenizer(
    const std::filesystem::path& model_dir);

}  // namespace tandem::text
