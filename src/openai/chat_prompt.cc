#include "openai/chat_prompt.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace tandem::openai {

namespace {

// A template looks at all of them for each name that it reads.
constexpr size_t kMaxTemplateVariables = 64;

Error wrong_message(size_t index, std::string_view what) {
  std::string field = fmt::format("messages[{}]", index);
  std::string message = fmt::format("'{}': {}", field, what);
  return invalid_argument(std::move(message), std::move(field));
}

// The text parts of a content list, a line each: templates that know only strings then see a
// string.
Result<std::string> join_parts(const Json& parts, std::string_view role, size_t index) {
  std::string text;
  for (const Json& part : parts) {
    if (part.is_string()) {
      text += text.empty() ? "" : "\n";
      text += part.get_ref<const std::string&>();
      continue;
    }
    const auto type = part.is_object() ? part.find("type") : part.end();
    if (!part.is_object() || type == part.end() || !type->is_string()) {
      return wrong_message(index, "each part of 'content' must be an object with a 'type'");
    }
    // A conversation may hold a refusal as an earlier answer. Its text is in the field "refusal".
    const bool refusal = *type == "refusal" && role == "assistant";
    if (*type != "text" && !refusal) {
      Error error = wrong_message(
          index, fmt::format("content parts of type {} are not supported, only \"text\" is",
                             quoted(*type)));
      error.code = ErrorCode::kUnsupported;
      return error;
    }
    const auto value = part.find(type->get_ref<const std::string&>());
    if (value == part.end() || !value->is_string()) {
      return wrong_message(index, fmt::format("a part of type {0} needs a string '{0}'",
                                              type->get_ref<const std::string&>()));
    }
    text += text.empty() ? "" : "\n";
    text += value->get_ref<const std::string&>();
  }
  return text;
}

// Clients send the arguments of a call as JSON text; templates want the value.
void open_arguments(Json& message) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) {
    return;
  }
  for (Json& call : *calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) {
      continue;
    }
    Json& function = call["function"];
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || !arguments->is_string()) {
      continue;
    }
    const auto parsed = parse_object(arguments->get_ref<const std::string&>(), {});
    if (parsed.ok()) {  // text that is not an object is shown to the model as it is
      *arguments = *parsed;
    }
  }
}

// An assistant's message that calls tools may be without content.
bool calls_tools(const Json& message) {
  const auto calls = message.find("tool_calls");
  const auto call = message.find("function_call");
  return (calls != message.end() && calls->is_array() && !calls->empty()) ||
         (call != message.end() && call->is_object());
}

Result<Json> parse_message(const Json& message, size_t index) {
  if (!message.is_object()) {
    return wrong_message(index, fmt::format("must be an object, not {}", describe(message)));
  }
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) {
    return wrong_message(index, "'role' must be a string such as \"user\"");
  }
  Json out = message;
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) {
    const auto refusal = message.find("refusal");
    const bool refuses = refusal != message.end() && refusal->is_string() && *role == "assistant";
    if (!refuses && !calls_tools(message)) {
      return wrong_message(index, "'content' is missing; give a string or a list of text parts");
    }
    out["content"] = refuses ? *refusal : Json("");
  } else if (content->is_array()) {
    ASSIGN_OR_RETURN(out["content"],
                     join_parts(*content, role->get_ref<const std::string&>(), index));
  } else if (!content->is_string()) {
    return wrong_message(index,
                         fmt::format("'content' must be a string or a list of text parts, not {}",
                                     describe(*content)));
  }
  if (out.contains("tool_calls") && out["tool_calls"].is_null()) {
    out.erase("tool_calls");  // some templates ask only whether there is such a member
  }
  open_arguments(out);
  return out;
}

Result<Json> parse_messages(const FieldReader& fields) {
  ASSIGN_OR_RETURN(const Json* list, fields.array("messages"));
  if (list == nullptr || list->empty()) {
    return invalid_argument("'messages' must be a list of at least one message", "messages");
  }
  Json messages = Json::array();
  for (size_t i = 0; i < list->size(); ++i) {
    ASSIGN_OR_RETURN(messages.emplace_back(), parse_message((*list)[i], i));
  }
  return messages;
}

enum class ToolUse : uint8_t { kAllowed, kForbidden };

Result<ToolUse> parse_tool_choice(const FieldReader& fields) {
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr || (choice->is_string() && *choice == "auto")) {
    return ToolUse::kAllowed;
  }
  if (choice->is_string() && *choice == "none") {
    return ToolUse::kForbidden;
  }
  if (choice->is_object() || (choice->is_string() && *choice == "required")) {
    return Error{ErrorCode::kUnsupported,
                 "'tool_choice': forcing a tool call is not supported; use \"auto\" or \"none\"",
                 "tool_choice"};
  }
  return fields.wrong("tool_choice", "\"auto\" or \"none\"", *choice);
}

// An array, or null when the template is to see no tools.
Result<Json> parse_tools(const FieldReader& fields) {
  ASSIGN_OR_RETURN(const ToolUse use, parse_tool_choice(fields));
  ASSIGN_OR_RETURN(const Json* tools, fields.array("tools"));
  if (tools == nullptr || tools->empty()) {
    return Json();
  }
  for (size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    const bool is_function = tool.is_object() && tool.contains("type") &&
                             tool["type"] == "function" && tool.contains("function") &&
                             tool["function"].is_object();
    if (!is_function) {
      const std::string field = fmt::format("tools[{}]", i);
      return invalid_argument(
          fmt::format("'{}' must be an object with \"type\": \"function\" and a 'function' object",
                      field),
          field);
    }
  }
  return use == ToolUse::kForbidden ? Json() : *tools;
}

}  // namespace

Result<std::string> render_chat(const FieldReader& fields, const text::ChatTemplate& chat_template,
                                std::chrono::local_seconds now) {
  if (fields.find("chat_template") != nullptr) {
    return Error{ErrorCode::kUnsupported,
                 "'chat_template': templates in requests are not accepted; the model's own is used",
                 "chat_template"};
  }
  ASSIGN_OR_RETURN(const Json messages, parse_messages(fields));
  ASSIGN_OR_RETURN(const Json tools, parse_tools(fields));
  ASSIGN_OR_RETURN(const auto add_prompt, fields.boolean("add_generation_prompt"));
  ASSIGN_OR_RETURN(const Json* documents, fields.array("documents"));
  ASSIGN_OR_RETURN(const Json* more, fields.object("chat_template_kwargs"));
  if (more != nullptr && more->size() > kMaxTemplateVariables) {
    return invalid_argument(
        fmt::format("'chat_template_kwargs' has {} entries, at most {} are allowed", more->size(),
                    kMaxTemplateVariables),
        "chat_template_kwargs");
  }
  Json extra = more == nullptr ? Json::object() : *more;
  if (documents != nullptr) {
    extra["documents"] = *documents;
  }
  Result<std::string> rendered =
      chat_template.render({.messages = &messages,
                            .tools = &tools,
                            .add_generation_prompt = add_prompt.value_or(true),
                            .extra = &extra,
                            .now = now});
  if (!rendered.ok() && rendered.error().param.empty()) {
    return Error{rendered.error().code, rendered.error().message, "messages"};
  }
  return rendered;
}

}  // namespace tandem::openai
