// The messages of a chat request as a prompt: checks their shape, flattens content parts, and
// renders the model's chat template. Not here: tool calls in answers, which stay text. Threads:
// any.
#pragma once

#include <chrono>
#include <string>

#include "base/result.h"
#include "openai/json_input.h"
#include "text/chat_template.h"

namespace tandem::openai {

// Reads messages, tools, tool_choice, documents, add_generation_prompt and chat_template_kwargs
// from a body. `now`: the wall clock where the server stands, for templates that print the date.
[[nodiscard]] Result<std::string> render_chat(const FieldReader& fields,
                                              const text::ChatTemplate& chat_template,
                                              std::chrono::local_seconds now);

}  // namespace tandem::openai
