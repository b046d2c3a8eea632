// What tokenizer_config.json, special_tokens_map.json and added_tokens.json of a model folder say
// about its tokenizer, and how it changes what the vocabulary file says. Not here: the chat
// template. Threads: any; plain data.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/added_tokens.h"
#include "text/token_bytes.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace tandem::text {

struct TokenizerConfig {
  std::string file;             // for errors
  std::optional<bool> add_bos;  // nullopt: as the vocabulary file says
  std::optional<bool> add_eos;
  // SentencePiece models that put a space before a text:
  bool legacy = true;            // before the text after a special token, too
  bool add_prefix_space = true;  // false: nowhere
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::vector<AddedToken> added;
  std::vector<std::string> special;  // tokens that are special wherever they stand
};

// Absent files are as good as empty ones.
Result<TokenizerConfig> read_tokenizer_config(const std::filesystem::path& model_dir);

// One entry of "added_tokens" or "added_tokens_decoder"; `id` is set by the caller.
Result<AddedToken> parse_added_token(const nlohmann::json& value, std::string_view where);

// Adds the config's tokens to those of the vocabulary file (`file`, in errors), and all of them to
// the vocabulary.
Status merge_added_tokens(const TokenizerConfig& config, std::string_view file,
                          Vocabulary& vocabulary, std::vector<AddedToken>& added);

// Which tokens stand around a text, and which are BOS and EOS.
struct SpecialFrame {
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;
  std::optional<TokenId> bos_id;
  std::optional<TokenId> eos_id;
};
// `frame` holds what the vocabulary file says.
Status apply_config(const TokenizerConfig& config, const Vocabulary& vocabulary,
                    SpecialFrame& frame);

}  // namespace tandem::text
