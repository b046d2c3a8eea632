// Finds the chat template of a model folder.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>

#include "gguf/files.h"
#include "text/chat_template.h"
#include "text/gguf_tokenizer.h"
#include "text/json_fields.h"

namespace tandem::text {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kMaxTemplateBytes = int64_t{1} << 20;
constexpr int64_t kMaxConfigBytes = int64_t{64}
                                    << 20;  // tokenizer_config.json may list every added token

struct Sources {
  std::optional<std::string> usual;
  std::optional<std::string> tool_use;
  std::string from;  // for errors
};

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// An absent file is as good as an empty object.
Result<nlohmann::json> read_optional_object(const fs::path& path) {
  if (!is_file(path)) return nlohmann::json::object();
  return read_json_object(path, kMaxConfigBytes);
}

// "chat_template": a text, or [{"name": ..., "template": ...}, ...].
Result<Sources> sources_of_field(const nlohmann::json& config, const std::string& file) {
  Sources sources{{}, {}, file + ": chat_template"};
  const nlohmann::json* field = find_field(config, "chat_template");
  if (field == nullptr) return sources;
  if (field->is_string()) {
    sources.usual = field->get<std::string>();
    return sources;
  }
  if (!field->is_array()) {
    return bad_file(sources.from, "must be a text or a list of objects with 'name' and 'template'");
  }
  for (const nlohmann::json& entry : *field) {
    if (!entry.is_object())
      return bad_file(sources.from, "every entry must be an object with 'name' and 'template'");
    ASSIGN_OR_RETURN(const std::string name, string_field(entry, "name", sources.from));
    ASSIGN_OR_RETURN(std::string source, string_field(entry, "template", sources.from));
    if (name == "default") sources.usual = std::move(source);
    if (name == "tool_use") sources.tool_use = std::move(source);
  }
  if (!sources.usual)
    return bad_file(sources.from, "the list has no template named 'default'; add one");
  return sources;
}

Result<Sources> find_sources(const fs::path& model_dir, const nlohmann::json& config) {
  const fs::path file = model_dir / "chat_template.jinja";
  if (is_file(file)) {
    Sources sources{{}, {}, file.string()};
    ASSIGN_OR_RETURN(sources.usual, read_file(file, kMaxTemplateBytes));
    const fs::path tool_use = model_dir / "additional_chat_templates" / "tool_use.jinja";
    if (is_file(tool_use)) {
      ASSIGN_OR_RETURN(sources.tool_use, read_file(tool_use, kMaxTemplateBytes));
    }
    return sources;
  }
  ASSIGN_OR_RETURN(Sources sources,
                   sources_of_field(config, (model_dir / "tokenizer_config.json").string()));
  if (sources.usual) return sources;
  const fs::path json = model_dir / "chat_template.json";
  ASSIGN_OR_RETURN(const nlohmann::json object, read_optional_object(json));
  return sources_of_field(object, json.string());
}

// A special token is a text or an object with its text in "content".
std::optional<std::string> token_text(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object()) return std::nullopt;
  const nlohmann::json* content = find_field(value, "content");
  return content != nullptr && content->is_string() ? std::optional(content->get<std::string>())
                                                    : std::nullopt;
}

void add_special_tokens(const nlohmann::json& object, ChatTemplateOptions& options) {
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    const nlohmann::json* field = find_field(object, name);
    std::optional<std::string> token = field == nullptr ? std::nullopt : token_text(*field);
    if (!token) continue;
    if (std::string_view(name) == "bos_token") {
      if (options.bos_token.empty()) options.bos_token = std::move(*token);
    } else if (std::string_view(name) == "eos_token") {
      if (options.eos_token.empty()) options.eos_token = std::move(*token);
    } else {
      options.other_tokens.emplace_back(name, std::move(*token));
    }
  }
}

Result<Sources> given_source(const std::string& given) {
  Sources sources{{}, {}, "the template"};
  if (is_file(given)) {
    sources.from = given;
    ASSIGN_OR_RETURN(sources.usual, read_file(given, kMaxTemplateBytes));
    return sources;
  }
  if (given.find("{{") == std::string::npos && given.find("{%") == std::string::npos) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("'{}' is neither a file nor a template (no {{{{ or {{% in it)",
                             given.substr(0, 200)),
                 {}};
  }
  sources.usual = given;
  return sources;
}

Result<ChatTemplate> make_template(Sources sources, ChatTemplateOptions options) {
  if (!sources.usual) return ChatTemplate::plain(std::move(options));
  options.tool_use_source = std::move(sources.tool_use);
  Result<ChatTemplate> made = ChatTemplate::parse(std::move(*sources.usual), std::move(options));
  if (!made.ok()) return bad_file(sources.from, made.error().message);
  return made;
}

Result<Sources> sources_of_gguf(const gguf::Metadata& metadata) {
  constexpr const char* kKey = "tokenizer.chat_template";
  Sources sources{{}, {}, fmt::format("{}: key '{}'", metadata.file(), kKey)};
  ASSIGN_OR_RETURN(sources.usual, metadata.string(kKey));
  ASSIGN_OR_RETURN(sources.tool_use, metadata.string("tokenizer.chat_template.tool_use"));
  for (const std::optional<std::string>& text : {sources.usual, sources.tool_use}) {
    if (text && std::ssize(*text) > kMaxTemplateBytes) {
      return metadata.error(kKey, fmt::format("has {} bytes, more than the {} that a template may "
                                              "have; give another one by --chat-template",
                                              text->size(), kMaxTemplateBytes));
    }
  }
  return sources;
}

// With the special tokens of a GGUF file.
Result<ChatTemplate> load_of_gguf(const fs::path& path, const std::optional<std::string>& given) {
  ASSIGN_OR_RETURN(const gguf::Files files, gguf::Files::open(path));
  ASSIGN_OR_RETURN(ChatTemplateOptions options, gguf_template_options(files.metadata()));
  ASSIGN_OR_RETURN(Sources sources,
                   given ? given_source(*given) : sources_of_gguf(files.metadata()));
  return make_template(std::move(sources), std::move(options));
}

// With the special tokens of a folder. `find` is given its tokenizer_config.json.
template <class FindSources>
Result<ChatTemplate> load(const fs::path& model_dir, const FindSources& find) {
  std::error_code ignored;
  if (!fs::is_directory(model_dir, ignored)) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} is not a folder; name the folder of a model", model_dir.string()),
                 {}};
  }
  ASSIGN_OR_RETURN(const nlohmann::json config,
                   read_optional_object(model_dir / "tokenizer_config.json"));
  ASSIGN_OR_RETURN(const nlohmann::json map,
                   read_optional_object(model_dir / "special_tokens_map.json"));
  ChatTemplateOptions options;
  add_special_tokens(config, options);
  add_special_tokens(map, options);
  ASSIGN_OR_RETURN(Sources sources, find(config));
  return make_template(std::move(sources), std::move(options));
}

}  // namespace

Result<ChatTemplate> load_chat_template(const std::filesystem::path& model_dir) {
  if (gguf::is_gguf(model_dir)) return load_of_gguf(model_dir, std::nullopt);
  return load(model_dir,
              [&](const nlohmann::json& config) { return find_sources(model_dir, config); });
}

Result<ChatTemplate> load_chat_template(const std::filesystem::path& model_dir,
                                        const std::string& given) {
  if (gguf::is_gguf(model_dir)) return load_of_gguf(model_dir, given);
  return load(model_dir, [&](const nlohmann::json&) { return given_source(given); });
}

}  // namespace tandem::text
