#include "text/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "text/bpe_tokenizer.h"
#include "text/byte_level.h"
#include "text/gguf_pre_tokenizer.h"
#include "text/json_fields.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/tokenizer_config.h"

namespace tandem::text {
namespace {

constexpr const char* kModelKey = "tokenizer.ggml.model";
constexpr const char* kPreKey = "tokenizer.ggml.pre";
constexpr const char* kTokensKey = "tokenizer.ggml.tokens";
constexpr const char* kTypesKey = "tokenizer.ggml.token_type";
constexpr const char* kScoresKey = "tokenizer.ggml.scores";
constexpr const char* kMergesKey = "tokenizer.ggml.merges";
// Converters give this score to tokens that were added to a SentencePiece model.
constexpr float kScoreOfAdded = -1000.0F;

// Of tokens. The numbers are SentencePiece's own.
struct Kind {
  static constexpr int64_t kNormal = 1;
  static constexpr int64_t kUnknown = 2;
  static constexpr int64_t kControl = 3;
  static constexpr int64_t kUserDefined = 4;
  static constexpr int64_t kByte = 6;
};

struct TokenList {
  std::vector<std::string_view> texts;
  std::vector<int64_t> types;  // as many
};

Result<TokenList> read_token_list(const gguf::Metadata& metadata) {
  ASSIGN_OR_RETURN(auto texts, metadata.strings(kTokensKey));
  if (!texts || texts->empty()) {
    return metadata.error(kTokensKey,
                          "is missing or empty: the file has no vocabulary. Convert the model "
                          "again, or name a folder with a tokenizer by --tokenizer");
  }
  if (std::ssize(*texts) > kMostTokens) {
    return metadata.error(
        kTokensKey, fmt::format("has {} tokens, more than the {} that are possible", texts->size(),
                                kMostTokens));
  }
  TokenList list{.texts = *std::move(texts), .types = {}};
  for (size_t id = 0; id < list.texts.size(); ++id) {
    if (find_invalid_utf8(list.texts[id])) {
      return metadata.error(
          kTokensKey,
          fmt::format("has a token {} that is not valid UTF-8; convert the model again", id));
    }
  }
  ASSIGN_OR_RETURN(auto types, metadata.integers(kTypesKey));
  list.types = types ? *std::move(types) : std::vector<int64_t>(list.texts.size(), Kind::kNormal);
  if (list.types.size() != list.texts.size()) {
    return metadata.error(kTypesKey, fmt::format("has {} entries, but there are {} tokens; convert "
                                                 "the model again",
                                                 list.types.size(), list.texts.size()));
  }
  for (size_t id = 0; id < list.types.size(); ++id) {
    if (list.types[id] < Kind::kNormal || list.types[id] > Kind::kByte) {
      return metadata.error(kTypesKey,
                            fmt::format("gives token {} the type {}; types are {} to {}, convert "
                                        "the model again",
                                        id, list.types[id], Kind::kNormal, Kind::kByte));
    }
  }
  return list;
}

// The text of the token that `key` names by its id.
Result<std::optional<std::string>> named_token_text(const gguf::Metadata& metadata,
                                                    const std::vector<std::string_view>& texts,
                                                    std::string_view key) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> id, metadata.integer(key));
  if (!id) {
    return std::optional<std::string>();
  }
  if (*id < 0 || *id >= std::ssize(texts)) {
    return metadata.error(key, fmt::format("is {}, but the vocabulary has tokens 0 to {}; convert "
                                           "the model again",
                                           *id, std::ssize(texts) - 1));
  }
  return std::optional(std::string(texts[static_cast<size_t>(*id)]));
}

Result<TokenizerConfig> config_of(const gguf::Metadata& metadata, const TokenList& tokens) {
  TokenizerConfig config;
  config.file = metadata.file();
  ASSIGN_OR_RETURN(config.add_bos, metadata.boolean("tokenizer.ggml.add_bos_token"));
  ASSIGN_OR_RETURN(config.add_eos, metadata.boolean("tokenizer.ggml.add_eos_token"));
  ASSIGN_OR_RETURN(config.bos_token,
                   named_token_text(metadata, tokens.texts, "tokenizer.ggml.bos_token_id"));
  ASSIGN_OR_RETURN(config.eos_token,
                   named_token_text(metadata, tokens.texts, "tokenizer.ggml.eos_token_id"));
  for (const std::optional<std::string>& name : {config.bos_token, config.eos_token}) {
    if (name) {
      config.special.push_back(*name);
    }
  }
  return config;
}

// What SentencePiece's library reads, in protobuf's encoding.
class ProtoWriter {
 public:
  void varint(uint32_t field, uint64_t value) {
    append_varint(uint64_t{field} << 3);
    append_varint(value);
  }
  void text(uint32_t field, std::string_view value) {
    append_varint(uint64_t{field} << 3 | 2);
    append_varint(value.size());
    bytes_.append(value);
  }
  void number(uint32_t field, float value) {
    append_varint(uint64_t{field} << 3 | 5);
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    for (uint32_t i = 0; i < 4; ++i) {
      bytes_.push_back(static_cast<char>(bits >> (8 * i) & 0xff));
    }
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  void append_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      bytes_.push_back(static_cast<char>(value | 0x80));
    }
    bytes_.push_back(static_cast<char>(value));
  }
  std::string bytes_;
};

// A model that says what the library must know: pieces with scores and types, byte-pair encoding,
// and how spaces are treated.
std::string sentencepiece_model(const TokenList& tokens, const std::vector<float>& scores,
                                bool dummy_prefix, bool fewer_spaces) {
  ProtoWriter model;
  bool bytes = false;
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    ProtoWriter piece;
    piece.text(1, tokens.texts[id]);
    piece.number(2, scores[id]);
    piece.varint(3, static_cast<uint64_t>(tokens.types[id]));
    model.text(1, piece.bytes());
    bytes = bytes || tokens.types[id] == Kind::kByte;
  }
  ProtoWriter trainer;
  trainer.varint(3, 2);  // byte-pair encoding
  trainer.varint(35, bytes ? 1 : 0);
  model.text(2, trainer.bytes());
  ProtoWriter normalizer;
  normalizer.varint(3, dummy_prefix ? 1 : 0);
  normalizer.varint(4, fewer_spaces ? 1 : 0);
  model.text(3, normalizer.bytes());
  return model.bytes();
}

// The library wants exactly one unknown token; some converters call it a control token.
Status settle_unknown(const gguf::Metadata& metadata, TokenList& tokens) {
  const auto count = std::ranges::count(tokens.types, Kind::kUnknown);
  ASSIGN_OR_RETURN(const auto named, metadata.integer("tokenizer.ggml.unknown_token_id"));
  if (count == 1) {
    return {};
  }
  if (count > 1 || !named || *named < 0 || *named >= std::ssize(tokens.texts)) {
    return metadata.error(
        kTypesKey, fmt::format("calls {} tokens unknown, but exactly one must be: type {}, or "
                               "tokenizer.ggml.unknown_token_id; convert the model again",
                               count, Kind::kUnknown));
  }
  tokens.types[static_cast<size_t>(*named)] = Kind::kUnknown;
  return {};
}

Result<std::unique_ptr<Tokenizer>> load_sentencepiece_kind(const gguf::Metadata& metadata,
                                                           TokenList tokens,
                                                           TokenizerConfig config) {
  ASSIGN_OR_RETURN(const auto scores, metadata.numbers(kScoresKey));
  if (!scores || scores->size() != tokens.texts.size()) {
    return metadata.error(kScoresKey,
                          fmt::format("has {} entries, but there are {} tokens; convert "
                                      "the model again",
                                      scores ? scores->size() : 0, tokens.texts.size()));
  }
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    if (!std::isfinite((*scores)[id])) {
      return metadata.error(kScoresKey,
                            fmt::format("gives token {} the score {}; convert the model "
                                        "again",
                                        id, (*scores)[id]));
    }
    if (tokens.texts[id].empty()) {
      return metadata.error(kTokensKey,
                            fmt::format("has an empty token {}; convert the model again", id));
    }
    if (tokens.types[id] == Kind::kUserDefined && (*scores)[id] <= kScoreOfAdded) {
      config.added.push_back(
          {.id = static_cast<TokenId>(id), .content = std::string(tokens.texts[id])});
    }
  }
  RETURN_IF_ERROR(settle_unknown(metadata, tokens));
  ASSIGN_OR_RETURN(const auto prefix, metadata.boolean("tokenizer.ggml.add_space_prefix"));
  ASSIGN_OR_RETURN(const auto fewer, metadata.boolean("tokenizer.ggml.remove_extra_whitespaces"));
  config.add_bos = config.add_bos.value_or(true);
  config.add_eos = config.add_eos.value_or(false);
  Result<std::unique_ptr<Tokenizer>> loaded = load_sentencepiece(
      sentencepiece_model(tokens, *scores, prefix.value_or(true), fewer.value_or(false)),
      metadata.file(), config);
  if (!loaded.ok()) {
    return metadata.error(kTokensKey, fmt::format("is not a vocabulary of SentencePiece: {}",
                                                  loaded.error().message));
  }
  return loaded;
}

bool is_added(int64_t type) {
  return type == Kind::kUnknown || type == Kind::kControl || type == Kind::kUserDefined;
}

Status add_merges(const gguf::Metadata& metadata, BpeParts& parts) {
  ASSIGN_OR_RETURN(const auto merges, metadata.strings(kMergesKey));
  if (!merges) {
    return metadata.error(kMergesKey, "is missing; convert the model again");
  }
  parts.model->reserve_merges(merges->size());
  for (size_t i = 0; i < merges->size(); ++i) {
    const std::string_view merge = (*merges)[i];
    const size_t space = merge.find(' ', 1);
    const bool is_pair = space != std::string_view::npos && space + 1 < merge.size();
    const std::string_view left = is_pair ? merge.substr(0, space) : merge;
    const std::string_view right = is_pair ? merge.substr(space + 1) : std::string_view();
    const auto a = parts.vocabulary.find(left);
    const auto b = parts.vocabulary.find(right);
    const auto merged = parts.vocabulary.find(std::string(left).append(right));
    if (!is_pair || !a || !b || !merged) {
      return metadata.error(kMergesKey,
                            fmt::format("has an entry {}, '{}', that is not two tokens whose text "
                                        "together is a token; convert the model again",
                                        i, gguf::shown(merge)));
    }
    parts.model->add_merge(*a, *b, *merged, static_cast<uint32_t>(i));
  }
  return {};
}

Result<std::unique_ptr<Tokenizer>> load_byte_level_kind(const gguf::Metadata& metadata,
                                                        const TokenList& tokens,
                                                        TokenizerConfig config) {
  ASSIGN_OR_RETURN(const std::optional<std::string> name, metadata.string(kPreKey));
  if (!name) {
    return metadata.error(kPreKey,
                          "is missing: the file does not say how text is cut, which files made "
                          "before May 2024 left out. Convert the model again");
  }
  const std::string where = fmt::format("{}: key '{}'", metadata.file(), kPreKey);
  ASSIGN_OR_RETURN(NamedPreTokenizer named, named_pre_tokenizer(*name, where));
  auto parts = std::make_unique<BpeParts>();
  parts->pre_tokenizer = std::move(named.cut);
  parts->normalizer = std::move(named.normalizer);
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    const std::string_view text = tokens.texts[id];
    const auto token = static_cast<TokenId>(id);
    RETURN_IF_ERROR(parts->vocabulary.add(text, token, metadata.file()));
    const bool added = is_added(tokens.types[id]);
    parts->bytes.add(added ? std::string(text)
                           : byte_level_decode(text).value_or(std::string(text)));
    if (added && !text.empty()) {
      parts->added.push_back({.id = token,
                              .content = std::string(text),
                              .special = tokens.types[id] != Kind::kUserDefined});
    }
  }
  RETURN_IF_ERROR(merge_added_tokens(config, metadata.file(), parts->vocabulary, parts->added));
  for (const AddedToken& token : parts->added) {
    if (token.special) {
      parts->bytes.set_special(token.id);
    }
  }
  parts->model = std::make_unique<BpeModel>(
      parts->vocabulary, parts->bytes,
      BpeOptions{.byte_level = true, .ignore_merges = named.ignore_merges});
  RETURN_IF_ERROR(add_merges(metadata, *parts));
  config.add_bos = config.add_bos.value_or(named.adds_bos && config.bos_token.has_value());
  config.add_eos = config.add_eos.value_or(false);
  SpecialFrame frame;
  RETURN_IF_ERROR(apply_config(config, parts->vocabulary, frame));
  parts->prefix = std::move(frame.prefix);
  parts->suffix = std::move(frame.suffix);
  parts->traits = {
      .vocab_size = parts->vocabulary.size(), .bos_id = frame.bos_id, .eos_id = frame.eos_id};
  return BpeTokenizer::create(std::move(parts));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_gguf_tokenizer(const gguf::Metadata& metadata) {
  ASSIGN_OR_RETURN(const std::optional<std::string> kind, metadata.string(kModelKey));
  if (!kind) {
    return metadata.error(kModelKey,
                          "is missing: the file has no tokenizer. Convert the model again, or name "
                          "a folder with a tokenizer by --tokenizer");
  }
  const bool has_pieces = std::string_view(*kind) == "llama";
  if (!has_pieces && std::string_view(*kind) != "gpt2") {
    return metadata.unsupported(
        kModelKey, fmt::format("is '{}'; supported are llama (SentencePiece BPE) and gpt2 "
                               "(byte-level BPE)",
                               gguf::shown(*kind)));
  }
  ASSIGN_OR_RETURN(TokenList tokens, read_token_list(metadata));
  ASSIGN_OR_RETURN(TokenizerConfig config, config_of(metadata, tokens));
  return has_pieces ? load_sentencepiece_kind(metadata, std::move(tokens), std::move(config))
                    : load_byte_level_kind(metadata, tokens, std::move(config));
}

Result<ChatTemplateOptions> gguf_template_options(const gguf::Metadata& metadata) {
  ChatTemplateOptions options;
  ASSIGN_OR_RETURN(const auto texts, metadata.strings(kTokensKey));
  if (!texts) {
    return options;
  }
  const auto read = [&](const char* key) { return named_token_text(metadata, *texts, key); };
  ASSIGN_OR_RETURN(const auto bos, read("tokenizer.ggml.bos_token_id"));
  ASSIGN_OR_RETURN(const auto eos, read("tokenizer.ggml.eos_token_id"));
  options.bos_token = bos.value_or("");
  options.eos_token = eos.value_or("");
  // The format spells the separator's key with two e.
  for (const auto& [name, key] : {std::pair("unk_token", "tokenizer.ggml.unknown_token_id"),
                                  std::pair("sep_token", "tokenizer.ggml.seperator_token_id"),
                                  std::pair("pad_token", "tokenizer.ggml.padding_token_id"),
                                  std::pair("mask_token", "tokenizer.ggml.mask_token_id")}) {
    ASSIGN_OR_RETURN(const auto text, read(key));
    if (text) {
      options.other_tokens.emplace_back(name, *text);
    }
  }
  return options;
}

}  // namespace tandem::text
