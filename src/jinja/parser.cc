#include "jinja/parser.h"

#include <algorithm>

#include "jinja/parser_state.h"
#include "jinja/scopes.h"

namespace tandem::jinja {
namespace {

class StatementParser {
 public:
  explicit StatementParser(std::string_view source)
      : stream_(tokenize(source)), expressions_(stream_, depth_) {}

  SyntaxTree parse() {
    SyntaxTree tree;
    tree.body = parse_body({});
    if (!stream_.at(TokenKind::kEnd)) stream_.fail_unexpected("end of the template");
    settle_names(tree);
    return tree;
  }

 private:
  // Statements up to a block whose name is in `ends`; that name is the current token then. No ends:
  // the whole source.
  Body parse_body(std::initializer_list<std::string_view> ends) {
    const DepthGuard guard(depth_, stream_);
    Body body;
    while (!stream_.at(TokenKind::kEnd)) {
      const int line = stream_.line();
      if (stream_.at(TokenKind::kData)) {
        body.push_back({line, OutputText{stream_.next().text}});
      } else if (stream_.at(TokenKind::kVariableBegin)) {
        stream_.next();
        ExpressionPtr value = expressions_.parse_tuple();
        stream_.expect(TokenKind::kVariableEnd, "}}");
        body.push_back({line, OutputValue{std::move(value)}});
      } else {
        stream_.expect(TokenKind::kBlockBegin, "{%");
        if (std::any_of(ends.begin(), ends.end(),
                        [this](auto end) { return stream_.at_name(end); }))
          return body;
        parse_block(body);
      }
    }
    if (ends.size() != 0) stream_.fail_unexpected(*(ends.end() - 1));
    return body;
  }

  void end_block() { stream_.expect(TokenKind::kBlockEnd, "%}"); }

  // Skips the name of an end tag, which is the current token, and closes the tag.
  void close_tag() {
    stream_.next();
    end_block();
  }

  void parse_block(Body& body) {
    const Token tag = stream_.expect(TokenKind::kName, "name of a statement");
    const std::string& name = tag.text;
    if (name == "for") {
      body.push_back({tag.line, parse_for()});
    } else if (name == "if") {
      body.push_back({tag.line, parse_if()});
    } else if (name == "set") {
      parse_set(tag.line, body);
    } else if (name == "macro") {
      body.push_back({tag.line, parse_macro()});
    } else if (name == "call") {
      body.push_back({tag.line, parse_call_block()});
    } else if (name == "filter") {
      FilterBlock block{expressions_.parse_filter_chain(nullptr), {}, {}};
      end_block();
      block.body = parse_enclosed("endfilter");
      body.push_back({tag.line, std::move(block)});
    } else if (name == "with") {
      body.push_back({tag.line, parse_with()});
    } else if (name == "generation") {
      end_block();
      body.push_back({tag.line, Generation{parse_enclosed("endgeneration"), {}}});
    } else if (name == "print") {
      while (!stream_.at(TokenKind::kBlockEnd)) {
        body.push_back({tag.line, OutputValue{expressions_.parse_expression()}});
        if (!stream_.skip_operator(",")) break;
      }
      end_block();
    } else if (name == "break" || name == "continue") {
      if (loops_ == 0) fail(fmt::format("line {}: '{}' outside of a loop", tag.line, name));
      end_block();
      if (name == "break") {
        body.push_back({tag.line, Break{}});
      } else {
        body.push_back({tag.line, Continue{}});
      }
    } else {
      fail(fmt::format("line {}: a chat template cannot use the statement '{}'", tag.line, name));
    }
  }

  // A body that becomes a function or a capture of its own, which break and continue cannot leave.
  Body parse_enclosed(std::string_view end) {
    const int loops_outside = std::exchange(loops_, 0);
    Body body = parse_body({end});
    loops_ = loops_outside;
    close_tag();
    return body;
  }

  std::string parse_target_name() {
    const Token token = stream_.expect(TokenKind::kName, "name");
    constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
    if (std::find(std::begin(kReserved), std::end(kReserved), token.text) != std::end(kReserved)) {
      fail(fmt::format("line {}: '{}' cannot be assigned to", token.line, token.text));
    }
    return token.text;
  }

  // A name, name.attribute or (target, ...).
  Target parse_single_target() {
    const DepthGuard guard(depth_, stream_);
    Target target;
    if (stream_.skip_operator("(")) {
      target = parse_target();
      stream_.expect_operator(")");
      return target;
    }
    target.name = parse_target_name();
    if (stream_.skip_operator("."))
      target.attribute = stream_.expect(TokenKind::kName, "name").text;
    return target;
  }

  Target parse_target() {
    Target target = parse_single_target();
    if (!stream_.at_operator(",")) return target;
    Target tuple;
    tuple.targets.push_back(std::move(target));
    while (stream_.skip_operator(",")) {
      if (!stream_.at(TokenKind::kName) && !stream_.at_operator("(")) break;
      if (stream_.at_name("in")) break;
      tuple.targets.push_back(parse_single_target());
    }
    return tuple;
  }

  For parse_for() {
    For loop;
    loop.target = parse_target();
    if (!stream_.skip_name("in")) stream_.fail_unexpected("in");
    loop.iterable = expressions_.parse_tuple(ExpressionParser::Conditionals::kNot);
    if (stream_.skip_name("if")) loop.condition = expressions_.parse_expression();
    loop.is_recursive = stream_.skip_name("recursive");
    end_block();
    ++loops_;
    loop.body = parse_body({"else", "endfor"});
    --loops_;
    if (stream_.at_name("else")) {
      close_tag();
      loop.otherwise = parse_body({"endfor"});
    }
    close_tag();
    return loop;
  }

  If parse_if() {
    If statement;
    do {
      if (stream_.at_name("elif")) stream_.next();
      ExpressionPtr condition = expressions_.parse_tuple();
      end_block();
      Body body = parse_body({"elif", "else", "endif"});
      statement.branches.emplace_back(std::move(condition), std::move(body));
    } while (stream_.at_name("elif"));
    if (stream_.at_name("else")) {
      close_tag();
      statement.otherwise = parse_body({"endif"});
    }
    close_tag();
    return statement;
  }

  void parse_set(int line, Body& body) {
    Target target = parse_target();
    if (stream_.skip_operator("=")) {
      ExpressionPtr value = expressions_.parse_tuple();
      end_block();
      body.push_back({line, Set{std::move(target), std::move(value)}});
      return;
    }
    SetBlock block{std::move(target), nullptr, {}, {}};
    if (stream_.skip_operator("|")) block.filter = expressions_.parse_filter_chain(nullptr);
    end_block();
    block.body = parse_enclosed("endset");
    body.push_back({line, std::move(block)});
  }

  void parse_parameters(MacroDefinition& macro) {
    stream_.expect_operator("(");
    while (!stream_.at_operator(")")) {
      if (!macro.parameters.empty()) stream_.expect_operator(",");
      MacroDefinition::Parameter parameter{parse_target_name(), nullptr};
      if (stream_.skip_operator("=")) {
        parameter.fallback = expressions_.parse_expression();
      } else if (!macro.parameters.empty() && macro.parameters.back().fallback != nullptr) {
        stream_.fail_here("a parameter without a default follows one with a default");
      }
      macro.parameters.push_back(std::move(parameter));
    }
    stream_.expect_operator(")");
  }

  // The names that the body reads decide whether the macro takes extra arguments, as in jinja2.
  void parse_macro_body(MacroDefinition& macro, std::string_view end) {
    std::vector<std::string> outer = std::exchange(expressions_.names_read(), {});
    macro.body = parse_enclosed(end);
    std::vector<std::string>& names = expressions_.names_read();
    const auto reads = [&](std::string_view name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    macro.uses_varargs = reads("varargs");
    macro.uses_kwargs = reads("kwargs");
    macro.uses_caller = reads("caller");
    names.insert(names.end(), outer.begin(),
                 outer.end());  // an outer macro's body reads these names too
  }

  std::shared_ptr<MacroDefinition> parse_macro() {
    auto macro = std::make_shared<MacroDefinition>();
    macro->name = parse_target_name();
    parse_parameters(*macro);
    end_block();
    parse_macro_body(*macro, "endmacro");
    return macro;
  }

  CallBlock parse_call_block() {
    auto caller = std::make_shared<MacroDefinition>();
    caller->name = "caller";
    if (stream_.at_operator("(")) parse_parameters(*caller);
    CallBlock block;
    block.call = expressions_.parse_expression();
    if (!std::holds_alternative<Call>(block.call->node))
      stream_.fail_here("a call block needs a call");
    end_block();
    parse_macro_body(*caller, "endcall");
    block.caller = std::move(caller);
    return block;
  }

  With parse_with() {
    With with;
    while (!stream_.at(TokenKind::kBlockEnd)) {
      if (!with.assignments.empty()) stream_.expect_operator(",");
      Target target = parse_single_target();
      stream_.expect_operator("=");
      with.assignments.emplace_back(std::move(target), expressions_.parse_expression());
    }
    end_block();
    with.body = parse_body({"endwith"});
    close_tag();
    return with;
  }

  TokenStream stream_;
  int depth_ = 0;
  int loops_ = 0;  // enclosing loops that break and continue can reach
  ExpressionParser expressions_;
};

}  // namespace

SyntaxTree parse_template(std::string_view source) { return StatementParser(source).parse(); }

}  // namespace tandem::jinja
