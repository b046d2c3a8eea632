// How values look as text: Python's str() and repr(), float and integer formatting. Charges `work`
// for what it writes.
#pragma once

#include <string>
#include <string_view>

#include "jinja/value.h"

namespace tandem::jinja {

// str(): a string as it is, an undefined value as nothing, everything else as repr().
std::string to_text(const Value& value, Work& work);
std::string to_repr(const Value& value, Work& work);

std::string integer_text(Int value);
std::string real_text(double value);  // Python's repr(float): 1.0, 1e+16, nan, inf
// `text` with everything beyond ASCII as \x, \u or \U, as Python's ascii() has it.
std::string to_ascii(std::string_view text);
std::string python_quoted(std::string_view text);  // Python's repr(str)
std::string escape_html(std::string_view text);    // & < > ' " as entities

}  // namespace tandem::jinja
