// A chat template, parsed and rendered with a usual conversation: whatever it does, it ends, within
// its limits.
#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "text/chat_template.h"

namespace tandem::text {
namespace {

nlohmann::ordered_json messages() {
  return nlohmann::ordered_json::parse(R"([
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is 1 + 1? \u00e9"},
    {"role": "assistant", "content": "2", "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2.5}}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "3"},
    {"role": "user", "content": [{"type": "text", "text": "Thanks"}]}])");
}

nlohmann::ordered_json tools() {
  return nlohmann::ordered_json::parse(R"([{"type": "function", "function": {
    "name": "add", "description": "Adds", "parameters": {"type": "object",
      "properties": {"a": {"type": "integer"}, "b": {"type": ["number", "null"]}}}}}])");
}

TANDEM_FUZZ_TARGET(input) {
  static const nlohmann::ordered_json conversation = messages();
  static const nlohmann::ordered_json offered = tools();
  // A two-hundredth of the usual steps: many inputs loop, and an input that ends at the limit tells
  // the same at any.
  const auto parsed = ChatTemplate::parse(std::string(input), {.bos_token = "<s>",
                                                               .eos_token = "</s>",
                                                               .other_tokens = {},
                                                               .tool_use_source = {},
                                                               .limits = {.max_steps = 100'000}});
  if (!parsed.ok()) {
    CHECK(!parsed.error().message.empty());
    return;
  }
  for (const nlohmann::ordered_json* const some_tools :
       {&offered, static_cast<const nlohmann::ordered_json*>(nullptr)}) {
    const Result<std::string> rendered =
        parsed->render({.messages = &conversation, .tools = some_tools});
    fuzz::use(rendered.ok() ? rendered->size() : rendered.error().message.size());
  }
}

}  // namespace
}  // namespace tandem::text
