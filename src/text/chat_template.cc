#include "text/chat_template.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tandem::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kPlainSource[] =
    "{{ bos_token }}"
    "{% for message in messages %}{{ message.role }}: {{ message.content or '' }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}";

bool is_absent(const Json* json) { return json == nullptr || json->is_null(); }

Status check_input(const ChatTemplateInput& input) {
  if (input.messages == nullptr || !input.messages->is_array()) {
    return invalid_argument("messages must be a list of objects", "messages");
  }
  for (size_t i = 0; i < input.messages->size(); ++i) {
    if (!(*input.messages)[i].is_object()) {
      return invalid_argument(fmt::format("messages[{}] must be an object", i), "messages");
    }
  }
  if (!is_absent(input.tools) && !input.tools->is_array()) {
    return invalid_argument("tools must be a list of objects", "tools");
  }
  if (is_absent(input.extra)) return {};
  if (!input.extra->is_object()) {
    return invalid_argument("chat_template_kwargs must be an object", "chat_template_kwargs");
  }
  for (const char* name : {"messages", "tools"}) {
    if (input.extra->contains(name)) {
      return invalid_argument(
          fmt::format(
              "chat_template_kwargs must not contain '{}'; give it as a field of the request",
              name),
          "chat_template_kwargs");
    }
  }
  return {};
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string source, ChatTemplateOptions options) {
  ASSIGN_OR_RETURN(jinja::Template usual, jinja::Template::parse(source));
  ChatTemplate made(std::move(usual), std::move(options));
  if (made.options_.tool_use_source) {
    ASSIGN_OR_RETURN(made.tool_use_, jinja::Template::parse(*made.options_.tool_use_source));
  }
  return made;
}

ChatTemplate ChatTemplate::plain(ChatTemplateOptions options) {
  options.tool_use_source.reset();
  Result<ChatTemplate> made = parse(kPlainSource, std::move(options));
  CHECK(made.ok(), "the plain template: {}", made.error().message);
  made->is_plain_ = true;
  return std::move(made).value();
}

Result<std::string> ChatTemplate::render(const ChatTemplateInput& input) const {
  RETURN_IF_ERROR(check_input(input));
  const bool has_tools = !is_absent(input.tools) && !input.tools->empty();
  std::vector<std::pair<std::string, Json>> texts;
  if (!options_.bos_token.empty()) texts.emplace_back("bos_token", options_.bos_token);
  if (!options_.eos_token.empty()) texts.emplace_back("eos_token", options_.eos_token);
  for (const auto& [name, token] : options_.other_tokens) texts.emplace_back(name, token);
  texts.emplace_back("add_generation_prompt", input.add_generation_prompt);

  // Templates test `tools is none`: what is absent is None, as transformers passes it.
  const Json none;
  std::vector<jinja::Variable> variables;
  variables.push_back({"messages", input.messages});
  variables.push_back({"tools", is_absent(input.tools) ? &none : input.tools});
  if (!is_absent(input.extra)) {
    for (const auto& [name, value] : input.extra->items()) variables.push_back({name, &value});
  }
  variables.push_back({"documents", &none});
  for (const auto& [name, value] : texts)
    variables.push_back({name, &value});  // the first of a name counts
  const jinja::Template& chosen = has_tools && tool_use_ ? *tool_use_ : usual_;
  return chosen.render(variables, input.now, options_.limits);
}

}  // namespace tandem::text
