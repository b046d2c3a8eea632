// Builds the syntax tree of a template: jinja2's statements and, in parser_expression.cc, its
// expressions with Python's precedence. Fails (Failure) with the line on what is not valid and on
// tags that a chat template cannot use (import, include, extends, block, do). Any thread.
#pragma once

#include <string_view>

#include "jinja/ast.h"

namespace tandem::jinja {

SyntaxTree parse_template(std::string_view source);

}  // namespace tandem::jinja
