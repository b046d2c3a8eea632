#include <algorithm>

#include "jinja/parser_state.h"

namespace tandem::jinja {
namespace {

const Expression* deepest_of(const std::vector<ExpressionPtr>& items) {
  const Expression* deepest = nullptr;
  for (const ExpressionPtr& item : items) {
    if (deepest == nullptr || item->depth > deepest->depth) deepest = item.get();
  }
  return deepest;
}

const Expression* deepest_of(const CallArguments& arguments) {
  const Expression* deepest = nullptr;
  for (const CallArguments::Argument& argument : arguments.arguments) {
    if (deepest == nullptr || argument.value->depth > deepest->depth)
      deepest = argument.value.get();
  }
  return deepest;
}

// Wraps `node`, whose direct children are `children` (null ones allowed). Fails when the tree grows
// too deep, which a long chain (a + b + c ...) does without deep parsing.
template <class Node>
ExpressionPtr make(int line, Node node, std::initializer_list<const Expression*> children = {}) {
  auto made = std::make_unique<Expression>();
  made->line = line;
  for (const Expression* child : children) {
    if (child != nullptr) made->depth = std::max(made->depth, child->depth + 1);
  }
  if (made->depth > kMaxSyntaxDepth)
    fail(fmt::format("line {}: the expression is nested too deeply", line));
  made->node = std::move(node);
  return made;
}

ExpressionPtr make_binary(int line, BinaryOperator operation, ExpressionPtr left,
                          ExpressionPtr right) {
  const Expression* l = left.get();
  const Expression* r = right.get();
  return make(line, Binary{operation, std::move(left), std::move(right)}, {l, r});
}

ExpressionPtr make_logic(int line, LogicOperator operation, ExpressionPtr left,
                         ExpressionPtr right) {
  const Expression* l = left.get();
  const Expression* r = right.get();
  return make(line, Logic{operation, std::move(left), std::move(right)}, {l, r});
}

ExpressionPtr make_unary(int line, UnaryOperator operation, ExpressionPtr operand) {
  const Expression* o = operand.get();
  return make(line, Unary{operation, std::move(operand)}, {o});
}

}  // namespace

ExpressionPtr ExpressionParser::parse_expression(Conditionals conditionals) {
  return conditionals == Conditionals::kAllowed ? parse_conditional() : parse_or();
}

bool ExpressionParser::at_tuple_end() const {
  return stream_.at(TokenKind::kVariableEnd) || stream_.at(TokenKind::kBlockEnd) ||
         stream_.at(TokenKind::kEnd) || stream_.at_operator(")") || stream_.at_name("recursive");
}

ExpressionPtr ExpressionParser::parse_tuple(Conditionals conditionals) {
  const int line = stream_.line();
  if (at_tuple_end()) stream_.fail_here("an expression is expected");
  std::vector<ExpressionPtr> items;
  items.push_back(parse_expression(conditionals));
  if (!stream_.at_operator(",")) return std::move(items.front());
  while (stream_.skip_operator(",")) {
    if (at_tuple_end()) break;
    items.push_back(parse_expression(conditionals));
  }
  const Expression* deepest = deepest_of(items);
  return make(line, TupleLiteral{std::move(items)}, {deepest});
}

ExpressionPtr ExpressionParser::parse_conditional() {
  const DepthGuard guard(depth_, stream_);
  ExpressionPtr value = parse_or();
  while (stream_.at_name("if")) {
    const int line = stream_.next().line;
    ExpressionPtr condition = parse_or();
    ExpressionPtr otherwise = stream_.skip_name("else") ? parse_conditional() : nullptr;
    const Expression* v = value.get();
    const Expression* c = condition.get();
    const Expression* o = otherwise.get();
    value = make(line, Conditional{std::move(value), std::move(condition), std::move(otherwise)},
                 {v, c, o});
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr left = parse_and();
  while (stream_.at_name("or")) {
    const int line = stream_.next().line;
    left = make_logic(line, LogicOperator::kOr, std::move(left), parse_and());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr left = parse_not();
  while (stream_.at_name("and")) {
    const int line = stream_.next().line;
    left = make_logic(line, LogicOperator::kAnd, std::move(left), parse_not());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!stream_.at_name("not")) return parse_comparison();
  const DepthGuard guard(depth_, stream_);
  const int line = stream_.next().line;
  return make_unary(line, UnaryOperator::kNot, parse_not());
}

ExpressionPtr ExpressionParser::parse_comparison() {
  static constexpr std::pair<std::string_view, CompareOperator> kOperators[] = {
      {"==", CompareOperator::kEqual},  {"!=", CompareOperator::kNotEqual},
      {"<", CompareOperator::kLess},    {"<=", CompareOperator::kLessEqual},
      {">", CompareOperator::kGreater}, {">=", CompareOperator::kGreaterEqual}};
  const int line = stream_.line();
  Comparison comparison{parse_sum(), {}};
  const Expression* deepest = comparison.first.get();
  while (true) {
    std::optional<CompareOperator> operation;
    for (const auto& [text, code] : kOperators) {
      if (stream_.at_operator(text)) operation = code;
    }
    if (stream_.at_name("in")) operation = CompareOperator::kIn;
    const bool not_in = stream_.at_name("not") && stream_.following().kind == TokenKind::kName &&
                        stream_.following().text == "in";
    if (not_in) {
      stream_.next();
      operation = CompareOperator::kNotIn;
    }
    if (!operation) break;
    stream_.next();
    comparison.rest.emplace_back(*operation, parse_sum());
    if (comparison.rest.back().second->depth > deepest->depth)
      deepest = comparison.rest.back().second.get();
  }
  if (comparison.rest.empty()) return std::move(comparison.first);
  return make(line, std::move(comparison), {deepest});
}

ExpressionPtr ExpressionParser::parse_sum() {
  ExpressionPtr left = parse_concatenation();
  while (stream_.at_operator("+") || stream_.at_operator("-")) {
    const Token token = stream_.next();
    const BinaryOperator operation =
        token.text == "+" ? BinaryOperator::kAdd : BinaryOperator::kSubtract;
    left = make_binary(token.line, operation, std::move(left), parse_concatenation());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  const int line = stream_.line();
  std::vector<ExpressionPtr> parts;
  parts.push_back(parse_product());
  while (stream_.skip_operator("~")) parts.push_back(parse_product());
  if (parts.size() == 1) return std::move(parts.front());
  const Expression* deepest = deepest_of(parts);
  return make(line, Concatenation{std::move(parts)}, {deepest});
}

ExpressionPtr ExpressionParser::parse_product() {
  static constexpr std::pair<std::string_view, BinaryOperator> kOperators[] = {
      {"*", BinaryOperator::kMultiply},
      {"/", BinaryOperator::kDivide},
      {"//", BinaryOperator::kFloorDivide},
      {"%", BinaryOperator::kModulo}};
  ExpressionPtr left = parse_power();
  while (true) {
    const auto* found =
        std::find_if(std::begin(kOperators), std::end(kOperators),
                     [this](const auto& entry) { return stream_.at_operator(entry.first); });
    if (found == std::end(kOperators)) return left;
    const int line = stream_.next().line;
    left = make_binary(line, found->second, std::move(left), parse_power());
  }
}

ExpressionPtr ExpressionParser::parse_power() {
  ExpressionPtr left = parse_unary();
  while (stream_.at_operator("**")) {
    const int line = stream_.next().line;
    left = make_binary(line, BinaryOperator::kPower, std::move(left), parse_unary());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_unary() { return parse_unary_with(Filters::kAllowed); }

// A sign binds tighter than a filter: -1|abs is (-1)|abs.
ExpressionPtr ExpressionParser::parse_unary_with(Filters filters) {
  const DepthGuard guard(depth_, stream_);
  ExpressionPtr value;
  if (stream_.at_operator("-") || stream_.at_operator("+")) {
    const Token token = stream_.next();
    const UnaryOperator operation =
        token.text == "-" ? UnaryOperator::kNegate : UnaryOperator::kPlus;
    value = make_unary(token.line, operation, parse_unary_with(Filters::kNot));
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return filters == Filters::kAllowed ? parse_filters_and_tests(std::move(value))
                                      : std::move(value);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token& token = stream_.current();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::kName:
      return parse_name();
    case TokenKind::kString:
      return parse_string();
    case TokenKind::kInteger:
      return make(line, Constant{Value::integer(stream_.next().integer)});
    case TokenKind::kFloat:
      return make(line, Constant{Value::real(stream_.next().real)});
    default:
      break;
  }
  if (stream_.skip_operator("(")) {
    ExpressionPtr inside;
    inside = stream_.at_operator(")") ? make(line, TupleLiteral{}) : parse_tuple();
    stream_.expect_operator(")");
    return inside;
  }
  if (stream_.at_operator("[")) return parse_list();
  if (stream_.at_operator("{")) return parse_dict();
  stream_.fail_here(fmt::format("unexpected '{}'", token.text));
}

ExpressionPtr ExpressionParser::parse_name() {
  const Token token = stream_.next();
  if (token.text == "true" || token.text == "True")
    return make(token.line, Constant{Value::boolean(true)});
  if (token.text == "false" || token.text == "False")
    return make(token.line, Constant{Value::boolean(false)});
  if (token.text == "none" || token.text == "None") return make(token.line, Constant{Value()});
  if (names_read_.empty() || names_read_.back() != token.text) names_read_.push_back(token.text);
  return make(token.line, Name{token.text});
}

ExpressionPtr ExpressionParser::parse_string() {
  const int line = stream_.line();
  std::string text;
  while (stream_.at(TokenKind::kString)) text += stream_.next().text;
  return make(line, Constant{Value::string(std::move(text))});
}

ExpressionPtr ExpressionParser::parse_list() {
  const int line = stream_.next().line;
  std::vector<ExpressionPtr> items;
  while (!stream_.at_operator("]")) {
    if (!items.empty()) stream_.expect_operator(",");
    if (stream_.at_operator("]")) break;
    items.push_back(parse_conditional());
  }
  stream_.expect_operator("]");
  const Expression* deepest = deepest_of(items);
  return make(line, ListLiteral{std::move(items)}, {deepest});
}

ExpressionPtr ExpressionParser::parse_dict() {
  const int line = stream_.next().line;
  DictLiteral dict;
  const Expression* deepest = nullptr;
  while (!stream_.at_operator("}")) {
    if (!dict.entries.empty()) stream_.expect_operator(",");
    if (stream_.at_operator("}")) break;
    ExpressionPtr key = parse_conditional();
    stream_.expect_operator(":");
    ExpressionPtr value = parse_conditional();
    for (const Expression* child : {key.get(), value.get()}) {
      if (deepest == nullptr || child->depth > deepest->depth) deepest = child;
    }
    dict.entries.emplace_back(std::move(key), std::move(value));
  }
  stream_.expect_operator("}");
  return make(line, std::move(dict), {deepest});
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr object) {
  while (true) {
    if (stream_.at_operator(".")) {
      object = parse_dot(std::move(object));
    } else if (stream_.at_operator("[")) {
      object = parse_brackets(std::move(object));
    } else if (stream_.at_operator("(")) {
      object = parse_call(std::move(object));
    } else {
      return object;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters_and_tests(ExpressionPtr input) {
  while (true) {
    if (stream_.skip_operator("|")) {
      input = parse_filter(std::move(input));
    } else if (stream_.at_name("is")) {
      input = parse_test(std::move(input));
    } else if (stream_.at_operator("(")) {
      input = parse_call(std::move(input));
    } else {
      return input;
    }
  }
}

ExpressionPtr ExpressionParser::parse_dot(ExpressionPtr object) {
  const int line = stream_.next().line;
  const Expression* child = object.get();
  if (stream_.at(TokenKind::kInteger)) {
    ExpressionPtr key = make(line, Constant{Value::integer(stream_.next().integer)});
    return make(line, Item{std::move(object), std::move(key)}, {child});
  }
  Token name = stream_.expect(TokenKind::kName, "name");
  return make(line, Attribute{std::move(object), std::move(name.text)}, {child});
}

ExpressionPtr ExpressionParser::parse_brackets(ExpressionPtr object) {
  const int line = stream_.next().line;
  const auto part = [this]() -> ExpressionPtr {
    return stream_.at_operator(":") || stream_.at_operator("]") ? nullptr : parse_conditional();
  };
  ExpressionPtr first = part();
  if (!stream_.at_operator(":")) {
    if (first == nullptr) stream_.fail_here("an index is expected between '[' and ']'");
    if (stream_.at_operator(","))
      stream_.fail_here("only one index is supported between '[' and ']'");
    stream_.expect_operator("]");
    const Expression* o = object.get();
    const Expression* k = first.get();
    return make(line, Item{std::move(object), std::move(first)}, {o, k});
  }
  stream_.next();
  ExpressionPtr stop = part();
  ExpressionPtr step = stream_.skip_operator(":") ? part() : nullptr;
  stream_.expect_operator("]");
  const Expression* o = object.get();
  const Expression* a = first.get();
  const Expression* b = stop.get();
  const Expression* c = step.get();
  return make(line, Slice{std::move(object), std::move(first), std::move(stop), std::move(step)},
              {o, a, b, c});
}

CallArguments ExpressionParser::parse_arguments() {
  using Kind = CallArguments::Argument::Kind;
  CallArguments call;
  stream_.expect_operator("(");
  Kind last = Kind::kPositional;
  while (!stream_.at_operator(")")) {
    if (!call.arguments.empty()) {
      stream_.expect_operator(",");
      if (stream_.at_operator(")")) break;
    }
    Kind kind = Kind::kPositional;
    std::string name;
    if (stream_.skip_operator("*")) {
      kind = Kind::kUnpackList;
    } else if (stream_.skip_operator("**")) {
      kind = Kind::kUnpackDict;
    } else if (stream_.at(TokenKind::kName) && stream_.following().kind == TokenKind::kOperator &&
               stream_.following().text == "=") {
      kind = Kind::kNamed;
      name = stream_.next().text;
      stream_.next();
    }
    if (kind < last && kind != Kind::kUnpackList)
      stream_.fail_here("a positional argument follows a named one");
    last = std::max(last, kind);
    call.arguments.push_back({kind, std::move(name), parse_conditional()});
  }
  stream_.expect_operator(")");
  return call;
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  const int line = stream_.line();
  CallArguments arguments = parse_arguments();
  const Expression* c = callee.get();
  const Expression* a = deepest_of(arguments);
  return make(line, Call{std::move(callee), std::move(arguments)}, {c, a});
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name = stream_.expect(TokenKind::kName, "name").text;
  while (stream_.skip_operator(".")) name += "." + stream_.expect(TokenKind::kName, "name").text;
  return name;
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr input) {
  const int line = stream_.line();
  Filter filter{std::move(input), parse_dotted_name(), {}};
  if (stream_.at_operator("(")) filter.arguments = parse_arguments();
  const Expression* i = filter.input.get();
  const Expression* a = deepest_of(filter.arguments);
  return make(line, std::move(filter), {i, a});
}

ExpressionPtr ExpressionParser::parse_filter_chain(ExpressionPtr input) {
  do {
    input = parse_filter(std::move(input));
  } while (stream_.skip_operator("|"));
  return input;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
  const int line = stream_.next().line;
  const bool negated = stream_.skip_name("not");
  Test test{std::move(input), parse_dotted_name(), {}};
  const Token& token = stream_.current();
  const bool starts_value = token.kind == TokenKind::kName || token.kind == TokenKind::kString ||
                            token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat ||
                            stream_.at_operator("[") || stream_.at_operator("{");
  const bool ends_test = stream_.at_name("else") || stream_.at_name("or") || stream_.at_name("and");
  if (stream_.at_operator("(")) {
    test.arguments = parse_arguments();
  } else if (starts_value && !ends_test) {
    if (stream_.at_name("is")) stream_.fail_here("tests cannot be chained with 'is'");
    test.arguments.arguments.push_back(
        {CallArguments::Argument::Kind::kPositional, "", parse_postfix(parse_primary())});
  }
  const Expression* i = test.input.get();
  const Expression* a = deepest_of(test.arguments);
  ExpressionPtr made = make(line, std::move(test), {i, a});
  return negated ? make_unary(line, UnaryOperator::kNot, std::move(made)) : std::move(made);
}

}  // namespace tandem::jinja
