// The two halves of the parser and what they share: the token stream and the nesting depth. Used by
// the parser alone.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/ast.h"
#include "jinja/lexer.h"

namespace tandem::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  [[nodiscard]] const Token& current() const { return tokens_[at_]; }
  [[nodiscard]] const Token& following() const {
    return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_];
  }
  [[nodiscard]] int line() const { return current().line; }
  Token next() {
    const Token token = current();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  [[nodiscard]] bool at(TokenKind kind) const { return current().kind == kind; }
  [[nodiscard]] bool at_operator(std::string_view text) const {
    return is(TokenKind::kOperator, text);
  }
  [[nodiscard]] bool at_name(std::string_view text) const { return is(TokenKind::kName, text); }
  bool skip_operator(std::string_view text) { return skip_if(at_operator(text)); }
  bool skip_name(std::string_view text) { return skip_if(at_name(text)); }
  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) fail_unexpected(text);
  }
  Token expect(TokenKind kind, std::string_view what) {
    if (!at(kind)) fail_unexpected(what);
    return next();
  }
  [[noreturn]] void fail_here(std::string_view message) const {
    fail(fmt::format("line {}: {}", line(), message));
  }
  [[noreturn]] void fail_unexpected(std::string_view wanted) const {
    fail_here(at(TokenKind::kEnd)
                  ? fmt::format("the template ends where '{}' is expected", wanted)
                  : fmt::format("'{}' is expected, not '{}'", wanted, current().text));
  }

 private:
  [[nodiscard]] bool is(TokenKind kind, std::string_view text) const {
    return current().kind == kind && current().text == text;
  }
  bool skip_if(bool matches) {
    if (matches) next();
    return matches;
  }
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

// Counts nested constructs for as long as it lives.
class DepthGuard {
 public:
  DepthGuard(int& depth, const TokenStream& stream) : depth_(depth) {
    if (++depth_ > kMaxSyntaxDepth) {
      --depth_;
      stream.fail_here("the template is nested too deeply");
    }
  }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  ~DepthGuard() { --depth_; }

 private:
  int& depth_;
};

class ExpressionParser {
 public:
  // Whether an unparenthesized tuple may contain `a if b else c`; not in `for x in ...`, where `if`
  // is the loop's filter.
  enum class Conditionals { kAllowed, kNot };

  ExpressionParser(TokenStream& stream, int& depth) : stream_(stream), depth_(depth) {}

  ExpressionPtr parse_expression(Conditionals conditionals = Conditionals::kAllowed);
  // One expression, or several with commas between them: a tuple.
  ExpressionPtr parse_tuple(Conditionals conditionals = Conditionals::kAllowed);
  // `name(arguments) | name ...` around `input`, which may be null. The stream stands at the first
  // filter's name.
  ExpressionPtr parse_filter_chain(ExpressionPtr input);
  ExpressionPtr parse_unary();
  // Names read since the last clear: lets a macro know whether it uses varargs, kwargs or caller.
  std::vector<std::string>& names_read() { return names_read_; }

 private:
  enum class Filters { kAllowed, kNot };
  ExpressionPtr parse_conditional();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary_with(Filters filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  ExpressionPtr parse_string();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr object);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr input);
  ExpressionPtr parse_dot(ExpressionPtr object);
  ExpressionPtr parse_brackets(ExpressionPtr object);
  ExpressionPtr parse_call(ExpressionPtr callee);
  ExpressionPtr parse_filter(ExpressionPtr input);
  ExpressionPtr parse_test(ExpressionPtr input);
  std::string parse_dotted_name();
  CallArguments parse_arguments();
  [[nodiscard]] bool at_tuple_end() const;

  TokenStream& stream_;
  int& depth_;
  std::vector<std::string> names_read_;
};

}  // namespace tandem::jinja
