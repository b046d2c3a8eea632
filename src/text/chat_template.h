// Turns the messages of a chat into the text of a prompt by the model's own template. Not here:
// what a message may contain (the API checks that) and the tokens of the prompt; the text already
// holds the special tokens that the template writes, so it is tokenized without adding any. JSON
// comes as ordered_json, because templates print tools and arguments in the order of their keys.
// Threads: parsing makes an immutable value; render() may be called by many threads at once.
// Nothing is thrown.
#pragma once

#include <chrono>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "jinja/template.h"

namespace tandem::text {

struct ChatTemplateOptions {
  std::string bos_token;  // empty: not defined in the template
  std::string eos_token;
  // Other special tokens by the names that templates use: "pad_token", "unk_token" ...
  std::vector<std::pair<std::string, std::string>> other_tokens;
  // Takes the place of the source when a request offers tools.
  std::optional<std::string> tool_use_source;
  jinja::Limits limits;  // of one rendering
};

// What one request puts in. Everything is borrowed for the call.
struct ChatTemplateInput {
  const nlohmann::ordered_json* messages = nullptr;  // an array of objects; required
  const nlohmann::ordered_json* tools = nullptr;  // an array; null (or JSON null): `tools` is None
  bool add_generation_prompt = true;              // end with what comes before the model's answer
  const nlohmann::ordered_json* extra =
      nullptr;                       // an object of more variables (chat_template_kwargs), or null;
                                     // without one of that name `documents` is None
  std::chrono::local_seconds now{};  // wall-clock time where the server stands, for strftime_now()
};

class ChatTemplate {
 public:
  // Errors: kInvalidArgument with the line.
  static Result<ChatTemplate> parse(std::string source, ChatTemplateOptions options);
  // For models without a template: "role: text", a line each.
  static ChatTemplate plain(ChatTemplateOptions options);

  // Errors: kInvalidArgument: what the template itself says (raise_exception), word for word; or
  // what does not fit it, with the template's line; or a part of the input of the wrong type, with
  // Error::param naming it.
  [[nodiscard]] Result<std::string> render(const ChatTemplateInput& input) const;

  // The model brought no template: worth a warning at start.
  [[nodiscard]] bool is_plain() const { return is_plain_; }

 private:
  ChatTemplate(jinja::Template usual, ChatTemplateOptions options)
      : usual_(std::move(usual)), options_(std::move(options)) {}
  jinja::Template usual_;
  std::optional<jinja::Template> tool_use_;
  ChatTemplateOptions options_;
  bool is_plain_ = false;
};

// The template of a model folder: chat_template.jinja (and
// additional_chat_templates/tool_use.jinja), else the field chat_template of tokenizer_config.json
// (a text, or a list of named ones: "default", and "tool_use" for requests with tools), else of
// chat_template.json, else plain(). Special tokens come from tokenizer_config.json and
// special_tokens_map.json. Of a GGUF file: its keys tokenizer.chat_template and
// tokenizer.chat_template.tool_use. Errors name the file: kNotFound for a folder that is not there,
// kInvalidArgument for what is in it.
Result<ChatTemplate> load_chat_template(const std::filesystem::path& model_dir);

// The same with `given` instead of the folder's templates: the name of a file, or else the template
// itself, which is known by its braces.
Result<ChatTemplate> load_chat_template(const std::filesystem::path& model_dir,
                                        const std::string& given);

}  // namespace tandem::text
