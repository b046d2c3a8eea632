#include "text/tokenizer_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "text/json_fields.h"

namespace tandem::text {
namespace {

using nlohmann::json;

constexpr int64_t kLargestConfigBytes = int64_t{64} << 20;
constexpr size_t kLongestContentBytes = 4096;

// A token is named by a string or by an object with "content".
Result<std::optional<std::string>> named_token(const json& object, std::string_view key,
                                               std::string_view where) {
  const json* field = find_field(object, key);
  if (field == nullptr) {
    return std::optional<std::string>();
  }
  if (field->is_string()) {
    return std::optional<std::string>(field->get<std::string>());
  }
  if (field->is_object()) {
    ASSIGN_OR_RETURN(std::string content,
                     string_field(*field, "content", fmt::format("{}: {}", where, key)));
    return std::optional<std::string>(std::move(content));
  }
  return bad_file(where, fmt::format("\"{}\" is a {} where a string or an object is needed", key,
                                     field->type_name()));
}

Status read_special_names(const json& object, std::string_view where, TokenizerConfig& config) {
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token",
                          "cls_token", "mask_token"}) {
    ASSIGN_OR_RETURN(std::optional<std::string> name, named_token(object, key, where));
    if (!name) {
      continue;
    }
    const std::string_view which = key;
    if (which == "bos_token" && !config.bos_token) {
      config.bos_token = name;
    } else if (which == "eos_token" && !config.eos_token) {
      config.eos_token = name;
    }
    config.special.push_back(*std::move(name));
  }
  const json* more = find_field(object, "additional_special_tokens");
  if (more == nullptr) {
    return {};
  }
  if (!more->is_array()) {
    return bad_file(where, "\"additional_special_tokens\" is not a list");
  }
  for (const json& item : *more) {
    if (item.is_string()) {
      config.special.push_back(item.get<std::string>());
    } else if (item.is_object()) {
      ASSIGN_OR_RETURN(std::string content, string_field(item, "content", where));
      config.special.push_back(std::move(content));
    } else {
      return bad_file(where, "\"additional_special_tokens\" has an entry that names no token");
    }
  }
  return {};
}

Status read_added_decoder(const json& object, TokenizerConfig& config) {
  const json* decoder = find_field(object, "added_tokens_decoder");
  if (decoder == nullptr) {
    return {};
  }
  const std::string where = config.file + ": added_tokens_decoder";
  if (!decoder->is_object()) {
    return bad_file(where, "is not an object");
  }
  for (const auto& [key, value] : decoder->items()) {
    TokenId id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= kMostTokens) {
      return bad_file(where,
                      fmt::format("\"{}\" is not a token id (0 to {})", key, kMostTokens - 1));
    }
    ASSIGN_OR_RETURN(AddedToken token, parse_added_token(value, where));
    token.id = id;
    config.added.push_back(std::move(token));
  }
  return {};
}

// Older folders list what was added to a SentencePiece model as {"content": id}.
Status read_added_tokens_file(const std::filesystem::path& path, TokenizerConfig& config) {
  ASSIGN_OR_RETURN(const json object, read_json_object(path, kLargestConfigBytes));
  for (const auto& item : object.items()) {
    ASSIGN_OR_RETURN(const int64_t id, int_field(object, item.key(), path.string()));
    if (id < 0 || id >= kMostTokens || item.key().empty() ||
        item.key().size() > kLongestContentBytes) {
      return bad_file(path.string(), fmt::format("\"{}\" cannot have the id {}", item.key(), id));
    }
    const bool known = std::any_of(
        config.added.begin(), config.added.end(),
        [&](const auto& token) { return token.id == id && token.content == item.key(); });
    if (!known) {
      config.added.push_back(
          {.id = static_cast<TokenId>(id), .content = item.key(), .normalized = true});
    }
  }
  return {};
}

}  // namespace

Result<AddedToken> parse_added_token(const json& value, std::string_view where) {
  if (!value.is_object()) {
    return bad_file(where, "an added token is not an object");
  }
  AddedToken token;
  ASSIGN_OR_RETURN(token.content, string_field(value, "content", where));
  if (token.content.empty() || token.content.size() > kLongestContentBytes) {
    return bad_file(where, fmt::format("an added token has {} bytes of content; 1 to {} are needed",
                                       token.content.size(), kLongestContentBytes));
  }
  ASSIGN_OR_RETURN(token.special, bool_field(value, "special", where, false));
  ASSIGN_OR_RETURN(token.lstrip, bool_field(value, "lstrip", where, false));
  ASSIGN_OR_RETURN(token.rstrip, bool_field(value, "rstrip", where, false));
  ASSIGN_OR_RETURN(token.single_word, bool_field(value, "single_word", where, false));
  ASSIGN_OR_RETURN(token.normalized, bool_field(value, "normalized", where, !token.special));
  return token;
}

Result<TokenizerConfig> read_tokenizer_config(const std::filesystem::path& model_dir) {
  TokenizerConfig config;
  const std::filesystem::path path = model_dir / "tokenizer_config.json";
  config.file = path.string();
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    ASSIGN_OR_RETURN(const json object, read_json_object(path, kLargestConfigBytes));
    for (const auto& [key, value] : {std::pair{"add_bos_token", &config.add_bos},
                                     std::pair{"add_eos_token", &config.add_eos}}) {
      if (find_field(object, key) != nullptr) {
        ASSIGN_OR_RETURN(*value, bool_field(object, key, config.file, false));
      }
    }
    ASSIGN_OR_RETURN(config.legacy, bool_field(object, "legacy", config.file, true));
    ASSIGN_OR_RETURN(config.add_prefix_space,
                     bool_field(object, "add_prefix_space", config.file, true));
    RETURN_IF_ERROR(read_special_names(object, config.file, config));
    RETURN_IF_ERROR(read_added_decoder(object, config));
  }
  const std::filesystem::path map = model_dir / "special_tokens_map.json";
  if (std::filesystem::exists(map, ignored)) {
    ASSIGN_OR_RETURN(const json object, read_json_object(map, kLargestConfigBytes));
    RETURN_IF_ERROR(read_special_names(object, map.string(), config));
  }
  const std::filesystem::path added = model_dir / "added_tokens.json";
  if (std::filesystem::exists(added, ignored)) {
    RETURN_IF_ERROR(read_added_tokens_file(added, config));
  }
  return config;
}

Status merge_added_tokens(const TokenizerConfig& config, std::string_view file,
                          Vocabulary& vocabulary, std::vector<AddedToken>& added) {
  std::unordered_map<std::string, size_t> by_content;
  for (size_t i = 0; i < added.size(); ++i) {
    by_content.emplace(added[i].content, i);
    RETURN_IF_ERROR(vocabulary.add(added[i].content, added[i].id, file));
  }
  for (const AddedToken& token : config.added) {
    const auto [at, is_new] = by_content.emplace(token.content, added.size());
    if (is_new) {
      RETURN_IF_ERROR(vocabulary.add(token.content, token.id, config.file));
      added.push_back(token);
    } else if (added[at->second].id == token.id) {
      added[at->second].special = added[at->second].special || token.special;
    } else {
      return bad_file(config.file, fmt::format("the token \"{}\" has the id {} here and {} in the "
                                               "vocabulary file",
                                               token.content, token.id, added[at->second].id));
    }
  }
  for (const std::string& name : config.special) {
    const auto at = by_content.find(name);
    if (at != by_content.end()) {
      added[at->second].special = true;
    } else if (const std::optional<TokenId> id = vocabulary.find(name); id && !name.empty()) {
      by_content.emplace(name, added.size());
      added.push_back({.id = *id, .content = name, .special = true});
    }
  }
  return {};
}

Status apply_config(const TokenizerConfig& config, const Vocabulary& vocabulary,
                    SpecialFrame& frame) {
  if (config.bos_token) {
    frame.bos_id = vocabulary.find(*config.bos_token);
  }
  if (config.eos_token) {
    frame.eos_id = vocabulary.find(*config.eos_token);
  }
  const auto missing = [&](std::string_view flag, std::string_view name,
                           const std::optional<std::string>& token) {
    return bad_file(config.file,
                    fmt::format("\"{}\" is true, but \"{}\" ({}) is not a token of the "
                                "vocabulary",
                                flag, name, token.value_or("absent")));
  };
  if (config.add_bos) {
    const bool there =
        frame.bos_id && !frame.prefix.empty() && frame.prefix.front() == *frame.bos_id;
    if (*config.add_bos && !frame.bos_id) {
      return missing("add_bos_token", "bos_token", config.bos_token);
    }
    if (*config.add_bos && !there) {
      frame.prefix.insert(frame.prefix.begin(), *frame.bos_id);
    } else if (!*config.add_bos && there) {
      frame.prefix.erase(frame.prefix.begin());
    }
  }
  if (config.add_eos) {
    const bool there =
        frame.eos_id && !frame.suffix.empty() && frame.suffix.back() == *frame.eos_id;
    if (*config.add_eos && !frame.eos_id) {
      return missing("add_eos_token", "eos_token", config.eos_token);
    }
    if (*config.add_eos && !there) {
      frame.suffix.push_back(*frame.eos_id);
    } else if (!*config.add_eos && there) {
      frame.suffix.pop_back();
    }
  }
  return {};
}

}  // namespace tandem::text
