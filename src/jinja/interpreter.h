// Evaluates a syntax tree for one rendering. Owns what a rendering makes that can refer to itself:
// namespaces, loop objects and the scopes that macros close over; the destructor takes those apart,
// so no cycle leaks. Fails by Failure; current_line() then says where. One thread; the tree may be
// shared.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/ast.h"
#include "jinja/value.h"

namespace tandem::jinja {

// Variables of a block; what is not here is looked for in the scope around it.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;

  [[nodiscard]] const Value* find(std::string_view name) const;  // in this scope alone
  void set(std::string_view name, Value value);
};

class Interpreter {
 public:
  Interpreter(const Limits& limits, std::chrono::local_seconds now) : work_(limits), now_(now) {}
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;
  ~Interpreter();

  // `variables` hide the built-in functions of the same name.
  std::string render(const SyntaxTree& tree, std::vector<std::pair<std::string, Value>> variables);

  // For filters, tests, methods and functions.
  Work& work() { return work_; }
  [[nodiscard]] std::chrono::local_seconds now() const { return now_; }
  [[nodiscard]] int current_line() const { return line_; }
  Value call(const Value& callee, const Arguments& arguments);
  Value filter(std::string_view name, const Value& input, const Arguments& arguments);
  bool test(std::string_view name, const Value& input, const Arguments& arguments);
  // object.name and object[key]; undefined when there is none.
  Value attribute(const Value& object, std::string_view name);
  Value item(const Value& object, const Value& key);
  // Keeps `object` until the end of the rendering.
  Object* own(std::unique_ptr<Object> object);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  using ScopePtr = std::shared_ptr<Scope>;
  struct Loop;

  // Statements.
  Flow run(const Body& body);
  Flow run(const Statement& statement);
  Flow run(const If& statement);
  Flow run(const For& loop);
  Flow run_loop(const For& loop, const Value& iterable, const ScopePtr& outer, int depth);
  Value call_loop(const Loop& loop, const Arguments& arguments);
  Flow run(const With& with);
  void run(const Set& set);
  void run(const SetBlock& block);
  void run(const std::shared_ptr<MacroDefinition>& macro);
  void run(const CallBlock& block);
  void run(const FilterBlock& block);
  std::vector<Value> loop_items(const For& loop, const Value& iterable, const ScopePtr& outer);
  void assign(const Target& target, const Value& value);
  void put(std::string_view text);
  // A new scope inside `outer`.
  ScopePtr inside(const ScopePtr& outer, const Variables& unset = {});
  // What running `body` prints.
  std::string capture(const Body& body);
  // The text of a block after its filters, if it has any.
  template <class Block>
  Value filtered_text(const Block& block);
  Value apply_filter_chain(const Expression& filter, Value text);
  Value make_macro(const std::shared_ptr<const MacroDefinition>& macro);
  Value call_macro(const MacroDefinition& macro, const ScopePtr& closure,
                   const Arguments& arguments);
  void bind_parameters(const MacroDefinition& macro, const Arguments& arguments);

  void check_depth() const;

  // Expressions.
  Value evaluate(const Expression& expression);
  Value evaluate(const Constant& constant);
  Value evaluate(const Name& name);
  Value evaluate(const ListLiteral& list);
  Value evaluate(const TupleLiteral& tuple);
  Value evaluate(const DictLiteral& dict);
  Value evaluate(const Attribute& attribute);
  Value evaluate(const Item& item);
  Value evaluate(const Slice& slice);
  Value evaluate(const Call& call);
  Value evaluate(const Filter& filter);
  Value evaluate(const Test& test);
  Value evaluate(const Unary& unary);
  Value evaluate(const Binary& binary);
  Value evaluate(const Logic& logic);
  Value evaluate(const Comparison& comparison);
  Value evaluate(const Concatenation& concatenation);
  Value evaluate(const Conditional& conditional);
  Arguments evaluate(const CallArguments& call);
  Value evaluate_call(const Call& call, const Value* caller);
  Value lookup(const std::string& name);

  Work work_;
  const std::chrono::local_seconds now_;
  int line_ = 0;
  int depth_ = 0;
  ScopePtr scope_;
  std::string* out_ = nullptr;
  std::optional<Value> filter_input_;  // the text of the filter block being applied
  std::vector<std::unique_ptr<Object>> objects_;
  std::vector<ScopePtr> captured_scopes_;
};

}  // namespace tandem::jinja
