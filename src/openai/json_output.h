// Writes JSON text by appending to a string: responses and streamed chunks, where a document per
// token would be too slow. The caller places braces and commas. Threads: any; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::openai {

// `utf8` escaped for the inside of a JSON string, without the quotes. Needs valid UTF-8.
void append_escaped(std::string& out, std::string_view utf8);
// The same in quotes.
void append_string(std::string& out, std::string_view utf8);
// For text from outside: bytes that are not UTF-8 become U+FFFD.
void append_untrusted_string(std::string& out, std::string_view bytes);
void append_integer(std::string& out, int64_t value);
// JSON has no infinities and no NaN: they become -9999, as OpenAI-like servers answer for log 0.
void append_logprob(std::string& out, float value);

}  // namespace tandem::openai
