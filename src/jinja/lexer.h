// Cuts a template's source into tokens, with jinja2's white-space rules for trim_blocks and
// lstrip_blocks and its `-` and `+` signs already applied to the text between tags; comments are
// gone. Fails (Failure) with the line on unbalanced brackets, unclosed tags, bad literals and stray
// characters. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace tandem::jinja {

enum class TokenKind {
  kData,  // text to be copied
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;  // decoded for kString
  Int integer = 0;   // kInteger
  double real = 0;   // kFloat
};

// The last token is kEnd.
std::vector<Token> tokenize(std::string_view source);

}  // namespace tandem::jinja
