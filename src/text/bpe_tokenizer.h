// The tokenizer of a tokenizer.json (or of a tiktoken file): added tokens are cut out, the rest is
// normalized, split and merged, and the model's special tokens put around it. Not here: reading the
// files (tokenizer_json.h, tiktoken.h). Threads: const and shared.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe_model.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/token_bytes.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace tandem::text {

// What a loader puts together.
struct BpeParts {
  Vocabulary vocabulary;  // added tokens included
  TokenBytes bytes;
  std::unique_ptr<BpeModel> model;  // built on the two above
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::vector<AddedToken> added;
  std::vector<TokenId> prefix;  // put around a text when special tokens are asked for
  std::vector<TokenId> suffix;
  TokenizerTraits traits;
};

class BpeTokenizer final : public Tokenizer {
 public:
  // An error if the normalizer cannot be run on the added tokens.
  static Result<std::unique_ptr<Tokenizer>> create(std::unique_ptr<const BpeParts> parts);

  Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options) const override;
  std::string_view token_bytes(TokenId id) const override { return parts_->bytes[id]; }
  bool is_special(TokenId id) const override { return parts_->bytes.is_special(id); }
  std::optional<TokenId> id_of(std::string_view token) const override;
  const TokenizerTraits& traits() const override { return parts_->traits; }

 private:
  struct Work;
  explicit BpeTokenizer(std::unique_ptr<const BpeParts> parts) : parts_(std::move(parts)) {}
  Status encode_raw(std::string_view text, TextPlace place, Work& work) const;

  std::unique_ptr<const BpeParts> parts_;
  AddedTokenMatcher raw_tokens_;         // looked for in the text as given
  AddedTokenMatcher normalized_tokens_;  // looked for after normalizing
};

// Long texts would overflow 32-bit positions; no request comes near.
inline constexpr size_t kLongestTextBytes = size_t{1} << 30;
Status check_text(std::string_view text);
// What encode() answers beyond EncodeOptions::max_tokens.
Error too_many_tokens(int64_t max_tokens);

}  // namespace tandem::text
