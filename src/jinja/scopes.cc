#include "jinja/scopes.h"

#include <fmt/format.h>

#include <string_view>
#include <unordered_map>

namespace tandem::jinja {
namespace {

enum class Reached { kAlways, kInBranch };  // a statement of a scope, or one below an `if` in it

// The names that one scope knows of. A name belongs to the innermost scope that reads or sets it
// in its own statements; where such a scope only sets it, and no scope around knows it, it is
// undefined in there until it is set.
class ScopeNames {
 public:
  explicit ScopeNames(ScopeNames* outer) : outer_(outer) {}

  void declare(std::string_view name) { names_[name] = {}; }

  void read(std::string_view name) {
    if (names_.contains(name) || outer_knows(name)) return;
    names_[name] = {};
  }

  void set(std::string_view name, Reached reached) {
    if (names_.contains(name)) return;
    const bool outside = outer_knows(name);
    names_[name] = {.is_unset = !outside && reached == Reached::kAlways};
  }

  // Those that scopes inside this one can see before they are set; nobody can tell about the rest.
  [[nodiscard]] Variables unset() const {
    Variables variables;
    for (const auto& [name, entry] : names_) {
      if (entry.is_unset && entry.is_seen_inside) {
        variables.emplace_back(name, Value::undefined(fmt::format("'{}' is undefined", name)));
      }
    }
    return variables;
  }

 private:
  struct Entry {
    bool is_unset = false;
    bool is_seen_inside = false;
  };

  bool outer_knows(std::string_view name) {
    for (ScopeNames* scope = outer_; scope != nullptr; scope = scope->outer_) {
      const auto at = scope->names_.find(name);
      if (at == scope->names_.end()) continue;
      at->second.is_seen_inside = true;
      return true;
    }
    return false;
  }

  ScopeNames* outer_;
  std::unordered_map<std::string_view, Entry> names_;
};

// Everything that an expression reads.
class Reader {
 public:
  explicit Reader(ScopeNames& names) : names_(names) {}

  void read(const ExpressionPtr& expression) {
    if (expression == nullptr) return;
    std::visit([this](const auto& node) { visit(node); }, expression->node);
  }

 private:
  void read(const std::vector<ExpressionPtr>& expressions) {
    for (const ExpressionPtr& expression : expressions) read(expression);
  }
  void read(const CallArguments& call) {
    for (const CallArguments::Argument& argument : call.arguments) read(argument.value);
  }

  void visit(const Constant&) {}
  void visit(const Name& name) { names_.read(name.name); }
  void visit(const ListLiteral& list) { read(list.items); }
  void visit(const TupleLiteral& tuple) { read(tuple.items); }
  void visit(const DictLiteral& dict) {
    for (const auto& [key, value] : dict.entries) {
      read(key);
      read(value);
    }
  }
  void visit(const Attribute& attribute) { read(attribute.object); }
  void visit(const Item& item) {
    read(item.object);
    read(item.key);
  }
  void visit(const Slice& slice) {
    for (const auto* part : {&slice.object, &slice.start, &slice.stop, &slice.step}) read(*part);
  }
  void visit(const Call& call) {
    read(call.callee);
    read(call.arguments);
  }
  void visit(const Filter& filter) {
    read(filter.input);
    read(filter.arguments);
  }
  void visit(const Test& test) {
    read(test.input);
    read(test.arguments);
  }
  void visit(const Unary& unary) { read(unary.operand); }
  template <class Node>
  requires std::is_same_v<Node, Binary> || std::is_same_v<Node, Logic>
  void visit(const Node& node) {
    read(node.left);
    read(node.right);
  }
  void visit(const Comparison& comparison) {
    read(comparison.first);
    for (const auto& [operation, operand] : comparison.rest) read(operand);
  }
  void visit(const Concatenation& concatenation) { read(concatenation.parts); }
  void visit(const Conditional& conditional) {
    for (const auto* part : {&conditional.value, &conditional.condition, &conditional.otherwise}) {
      read(*part);
    }
  }

  ScopeNames& names_;
};

// One scope at a time: first all of its own statements, then the scopes inside it.
class Settler {
 public:
  void settle(SyntaxTree& tree) {
    ScopeNames names(nullptr);
    settle_body(names, tree.body);
    tree.unset = names.unset();
  }

 private:
  void settle_body(ScopeNames& names, Body& body) {
    std::vector<Statement*> inner;
    walk(names, body, Reached::kAlways, inner);
    for (Statement* statement : inner) {
      line_ = statement->line;
      std::visit(
          [&](auto& node) {
            if constexpr (requires { settle_inside(names, node); }) settle_inside(names, node);
          },
          statement->node);
    }
  }

  void walk(ScopeNames& names, Body& body, Reached reached, std::vector<Statement*>& inner) {
    for (Statement& statement : body) {
      line_ = statement.line;
      if (auto* branches = std::get_if<If>(&statement.node)) {
        for (auto& [condition, branch] : branches->branches) {
          Reader(names).read(condition);
          walk(names, branch, Reached::kInBranch, inner);
        }
        walk(names, branches->otherwise, Reached::kInBranch, inner);
      } else {
        std::visit([&](auto& node) { walk_own(names, node, reached); }, statement.node);
        inner.push_back(&statement);
      }
    }
  }

  // What a statement reads and sets in the scope that it stands in.
  template <class Node>
  void walk_own(ScopeNames& names, Node& node, Reached reached) {
    if constexpr (std::is_same_v<Node, OutputValue>) {
      Reader(names).read(node.value);
    } else if constexpr (std::is_same_v<Node, For>) {
      Reader(names).read(node.iterable);
    } else if constexpr (std::is_same_v<Node, Set>) {
      Reader(names).read(node.value);
      set(names, node.target, reached);
    } else if constexpr (std::is_same_v<Node, SetBlock>) {
      set(names, node.target, reached);
    } else if constexpr (std::is_same_v<Node, std::shared_ptr<MacroDefinition>>) {
      names.set(node->name, reached);
    } else if constexpr (std::is_same_v<Node, CallBlock>) {
      Reader(names).read(node.call);
    } else if constexpr (std::is_same_v<Node, FilterBlock>) {
      Reader(names).read(node.filter);
    } else if constexpr (std::is_same_v<Node, With>) {
      for (const auto& [target, value] : node.assignments) Reader(names).read(value);
    }
  }

  void set(ScopeNames& names, const Target& target, Reached reached) {
    if (!target.attribute.empty()) {
      names.read(target.name);
    } else if (!target.name.empty()) {
      check_not_loop(target);
      names.set(target.name, reached);
    }
    for (const Target& part : target.targets) set(names, part, reached);
  }

  void check_not_loop(const Target& target) const {
    if (loops_ == 0 || target.name != "loop") return;
    fail(fmt::format("line {}: inside a for, 'loop' cannot be assigned to", line_));
  }

  void declare(ScopeNames& names, const Target& target) {
    if (!target.name.empty()) names.declare(target.name);
    for (const Target& part : target.targets) declare(names, part);
  }

  void settle_inside(ScopeNames& outer, For& loop) {
    ++loops_;
    check_not_loop(loop.target);
    for (const Target& part : loop.target.targets) check_not_loop(part);
    ScopeNames filter(&outer);
    declare(filter, loop.target);
    Reader(filter).read(loop.condition);
    ScopeNames body(&outer);
    body.declare("loop");
    declare(body, loop.target);
    settle_body(body, loop.body);
    loop.unset = body.unset();
    ScopeNames otherwise(&outer);
    settle_body(otherwise, loop.otherwise);
    loop.unset_otherwise = otherwise.unset();
    --loops_;
  }

  void settle_inside(ScopeNames& outer, MacroDefinition& macro) {
    ScopeNames names(&outer);
    for (const auto& [name, fallback] : macro.parameters) names.declare(name);
    for (const auto& [name, fallback] : macro.parameters) Reader(names).read(fallback);
    for (const char* given : {"varargs", "kwargs", "caller"}) names.declare(given);
    settle_body(names, macro.body);
    macro.unset = names.unset();
  }
  void settle_inside(ScopeNames& outer, std::shared_ptr<MacroDefinition>& macro) {
    settle_inside(outer, *macro);
  }
  void settle_inside(ScopeNames& outer, CallBlock& block) { settle_inside(outer, *block.caller); }

  // The filters of a block work inside it, when its text is there.
  template <class Block>
  requires std::is_same_v<Block, SetBlock> || std::is_same_v<Block, FilterBlock>
  void settle_inside(ScopeNames& outer, Block& block) {
    ScopeNames names(&outer);
    settle_body(names, block.body);
    Reader(names).read(block.filter);
    block.unset = names.unset();
  }

  void settle_inside(ScopeNames& outer, Generation& block) {
    ScopeNames names(&outer);
    settle_body(names, block.body);
    block.unset = names.unset();
  }

  void settle_inside(ScopeNames& outer, With& with) {
    ScopeNames names(&outer);
    for (const auto& [target, value] : with.assignments) declare(names, target);
    settle_body(names, with.body);
    with.unset = names.unset();
  }

  int loops_ = 0;
  int line_ = 0;
};

}  // namespace

void settle_names(SyntaxTree& tree) { Settler().settle(tree); }

}  // namespace tandem::jinja
