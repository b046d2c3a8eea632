#include "jinja/interpreter.h"

#include <fmt/format.h>

#include "jinja/builtins.h"
#include "jinja/compare.h"
#include "jinja/print.h"
#include "jinja/run.h"

namespace tandem::jinja {

// The `loop` of a running for statement.
struct Interpreter::Loop final : Object {
  Loop() : Object("LoopContext") {}
  [[nodiscard]] std::optional<Value> find(std::string_view name) const override;
  [[nodiscard]] std::optional<Value> call(Interpreter& interpreter,
                                          const Arguments& arguments) const override {
    return interpreter.call_loop(*this, arguments);
  }

  const For* statement = nullptr;
  ScopePtr outer;
  std::vector<Value> items;
  size_t index = 0;
  int depth = 0;
  mutable std::optional<Value> last_changed;  // the arguments of the last loop.changed()
};

namespace {

template <class Loop>
Value make_cycle(const Loop* loop) {
  return Value(std::make_shared<const Callable>(
      Callable{"cycle", "method", [loop](Interpreter&, const Arguments& arguments) {
                 if (arguments.positional.empty()) fail("no items for cycling given");
                 return arguments.positional[loop->index % arguments.positional.size()];
               }}));
}

template <class Loop>
Value make_changed(const Loop* loop) {
  return Value(std::make_shared<const Callable>(Callable{
      "changed", "method", [loop](Interpreter& interpreter, const Arguments& arguments) {
        Value now = make_sequence(SequenceKind::kTuple, arguments.positional, interpreter.work());
        const bool same =
            loop->last_changed && equals(*loop->last_changed, now, interpreter.work());
        loop->last_changed = std::move(now);
        return Value::boolean(!same);
      }}));
}

}  // namespace

std::optional<Value> Interpreter::Loop::find(std::string_view name) const {
  const size_t count = items.size();
  const auto integer = [](size_t value) { return Value::integer(static_cast<Int>(value)); };
  if (name == "index") return integer(index + 1);
  if (name == "index0") return integer(index);
  if (name == "revindex") return integer(count - index);
  if (name == "revindex0") return integer(count - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == count);
  if (name == "length") return integer(count);
  if (name == "depth") return Value::integer(depth + 1);
  if (name == "depth0") return Value::integer(depth);
  if (name == "previtem")
    return index == 0 ? Value::undefined("there is no previous item") : items[index - 1];
  if (name == "nextitem")
    return index + 1 == count ? Value::undefined("there is no next item") : items[index + 1];
  if (name == "cycle") return make_cycle(this);
  if (name == "changed") return make_changed(this);
  return std::nullopt;
}

const Value* Scope::find(std::string_view name) const {
  for (const auto& [key, value] : variables) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, old] : variables) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

Interpreter::~Interpreter() {
  for (const ScopePtr& scope : captured_scopes_) scope->variables.clear();
  for (const auto& object : objects_) object->attributes.clear();
}

std::string Interpreter::render(const SyntaxTree& tree,
                                std::vector<std::pair<std::string, Value>> variables) {
  std::string out;
  out_ = &out;
  scope_ = std::make_shared<Scope>();
  scope_->variables = std::move(variables);
  for (const auto& [name, value] : tree.unset) scope_->set(name, value);
  run(tree.body);
  return out;
}

Object* Interpreter::own(std::unique_ptr<Object> object) {
  work_.allocate(512);
  objects_.push_back(std::move(object));
  return objects_.back().get();
}

void Interpreter::check_depth() const {
  if (depth_ > work_.limits().max_depth) fail("maximum recursion depth exceeded");
}

void Interpreter::put(std::string_view text) {
  work_.spend_on_bytes(text.size());
  if (text.size() > work_.limits().max_output_bytes - out_->size()) {
    fail("the template writes more text than a rendering may");
  }
  work_.allocate(text.size());
  *out_ += text;
}

Interpreter::ScopePtr Interpreter::inside(const ScopePtr& outer, const Variables& unset) {
  if (!unset.empty()) {
    work_.spend(static_cast<int64_t>(unset.size()));
    work_.allocate(unset.size(), sizeof(unset.front()));
  }
  return std::make_shared<Scope>(Scope{outer, unset});
}

std::string Interpreter::capture(const Body& body) {
  std::string text;
  const Restore<std::string*> output(out_, &text);
  run(body);
  return text;
}

template <class Block>
Value Interpreter::filtered_text(const Block& block) {
  const Restore<ScopePtr> scope(scope_, inside(scope_, block.unset));
  Value text = make_string(capture(block.body), work_);
  return block.filter != nullptr ? apply_filter_chain(*block.filter, std::move(text)) : text;
}

Interpreter::Flow Interpreter::run(const Body& body) {
  const Restore<int> deeper(depth_, depth_ + 1);
  check_depth();
  for (const Statement& statement : body) {
    const Flow flow = run(statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const Statement& statement) {
  work_.spend(1);
  line_ = statement.line;
  return std::visit(
      [this](const auto& node) {
        using Node = std::decay_t<decltype(node)>;
        if constexpr (std::is_same_v<Node, OutputText>) {
          put(node.text);
        } else if constexpr (std::is_same_v<Node, OutputValue>) {
          put(to_text(evaluate(*node.value), work_));
        } else if constexpr (std::is_same_v<Node, Generation>) {
          const Restore<ScopePtr> scope(scope_, inside(scope_, node.unset));
          put(capture(node.body));
        } else if constexpr (std::is_same_v<Node, Break>) {
          return Flow::kBreak;
        } else if constexpr (std::is_same_v<Node, Continue>) {
          return Flow::kContinue;
        } else if constexpr (std::is_same_v<Node, If> || std::is_same_v<Node, For> ||
                             std::is_same_v<Node, With>) {
          return run(node);
        } else {
          run(node);
        }
        return Flow::kNext;
      },
      statement.node);
}

Interpreter::Flow Interpreter::run(const If& statement) {
  for (const auto& [condition, body] : statement.branches) {
    if (is_truthy(evaluate(*condition))) return run(body);
  }
  return run(statement.otherwise);
}

Interpreter::Flow Interpreter::run(const For& loop) {
  return run_loop(loop, evaluate(*loop.iterable), scope_, 0);
}

std::vector<Value> Interpreter::loop_items(const For& loop, const Value& iterable,
                                           const ScopePtr& outer) {
  std::vector<Value> items = items_of(iterable, work_);
  if (loop.condition == nullptr) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    const Restore<ScopePtr> scope(scope_, inside(outer));
    assign(loop.target, item);
    if (is_truthy(evaluate(*loop.condition))) kept.push_back(std::move(item));
  }
  return kept;
}

Interpreter::Flow Interpreter::run_loop(const For& loop, const Value& iterable,
                                        const ScopePtr& outer, int depth) {
  auto made = std::make_unique<Loop>();
  made->items = loop_items(loop, iterable, outer);
  made->statement = &loop;
  made->outer = outer;
  made->depth = depth;
  Loop& state = *made;
  const Value loop_value(own(std::move(made)));
  // Unlike Python's, the else part runs unless some iteration came to its end: not when the first
  // one breaks, nor when all of them continue.
  bool any_completed = false;
  for (size_t i = 0; i < state.items.size(); ++i) {
    state.index = i;  // stays valid after the loop, for a template that kept `loop`
    work_.spend(1);
    const Restore<ScopePtr> scope(scope_, inside(outer, loop.unset));
    scope_->variables.emplace_back("loop", loop_value);
    assign(loop.target, state.items[i]);
    const Flow flow = run(loop.body);
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNext) any_completed = true;
  }
  if (any_completed || loop.otherwise.empty()) return Flow::kNext;
  const Restore<ScopePtr> scope(scope_, inside(outer, loop.unset_otherwise));
  return run(loop.otherwise);
}

// loop(items) of a recursive for: its text.
Value Interpreter::call_loop(const Loop& loop, const Arguments& arguments) {
  const Bound bound(arguments, "loop", {"iterable"}, 1);
  if (!loop.statement->is_recursive) {
    fail("the loop must have the 'recursive' marker to be called recursively");
  }
  const Restore<int> deeper(depth_, depth_ + 1);
  check_depth();
  std::string text;
  const Restore<std::string*> output(out_, &text);
  run_loop(*loop.statement, bound.at(0), loop.outer, loop.depth + 1);
  return make_string(std::move(text), work_);
}

Interpreter::Flow Interpreter::run(const With& with) {
  const ScopePtr inner = inside(scope_, with.unset);
  for (const auto& [target, value] : with.assignments) {
    const Value assigned = evaluate(*value);
    const Restore<ScopePtr> scope(scope_, inner);
    assign(target, assigned);
  }
  const Restore<ScopePtr> scope(scope_, inner);
  return run(with.body);
}

void Interpreter::run(const Set& set) { assign(set.target, evaluate(*set.value)); }

void Interpreter::run(const SetBlock& block) { assign(block.target, filtered_text(block)); }

void Interpreter::run(const FilterBlock& block) { put(to_text(filtered_text(block), work_)); }

Value Interpreter::apply_filter_chain(const Expression& filter, Value text) {
  const Restore<std::optional<Value>> input(filter_input_, std::move(text));
  return evaluate(filter);
}

void Interpreter::run(const std::shared_ptr<MacroDefinition>& macro) {
  Value made = make_macro(macro);
  scope_->set(macro->name, std::move(made));
}

void Interpreter::run(const CallBlock& block) {
  const Value caller = make_macro(block.caller);
  put(to_text(evaluate_call(std::get<Call>(block.call->node), &caller), work_));
}

void Interpreter::assign(const Target& target, const Value& value) {
  work_.spend(static_cast<int64_t>(scope_->variables.size() / 8) + 1);
  if (target.name.empty()) {
    const std::vector<Value> items = items_of(value, work_);
    const size_t want = target.targets.size();
    if (items.size() < want) {
      fail(fmt::format("not enough values to unpack (expected {}, got {})", want, items.size()));
    }
    if (items.size() > want) fail(fmt::format("too many values to unpack (expected {})", want));
    for (size_t i = 0; i < want; ++i) assign(target.targets[i], items[i]);
    return;
  }
  if (target.attribute.empty()) {
    work_.allocate(64);
    scope_->set(target.name, value);
    return;
  }
  Object* object = lookup(target.name).as_object();
  if (object == nullptr || !object->is_namespace)
    fail("cannot assign attribute on non-namespace object");
  work_.allocate(64);
  work_.spend(static_cast<int64_t>(object->attributes.size() / 8));
  object->set(target.attribute, value);
}

Value Interpreter::make_macro(const std::shared_ptr<const MacroDefinition>& macro) {
  work_.allocate(256);
  captured_scopes_.push_back(scope_);
  return Value(std::make_shared<const Callable>(
      Callable{macro->name, "Macro",
               [macro, closure = scope_](Interpreter& interpreter, const Arguments& arguments) {
                 return interpreter.call_macro(*macro, closure, arguments);
               }}));
}

Value Interpreter::call_macro(const MacroDefinition& macro, const ScopePtr& closure,
                              const Arguments& arguments) {
  const Restore<int> deeper(depth_, depth_ + 1);
  check_depth();
  std::string text;
  const Restore<std::string*> output(out_, &text);
  const Restore<ScopePtr> scope(scope_, inside(closure, macro.unset));
  const Restore<std::optional<Value>> no_input(filter_input_, std::nullopt);
  bind_parameters(macro, arguments);
  run(macro.body);
  return make_string(std::move(text), work_);
}

void Interpreter::bind_parameters(const MacroDefinition& macro, const Arguments& arguments) {
  const size_t count = macro.parameters.size();
  std::vector<const Value*> given(count, nullptr);
  for (size_t i = 0; i < std::min(count, arguments.positional.size()); ++i)
    given[i] = &arguments.positional[i];
  if (arguments.positional.size() > count && !macro.uses_varargs) {
    fail(fmt::format("macro '{}' takes not more than {} argument(s)", macro.name, count));
  }
  Dict extra;
  Value caller = Value::undefined("No caller defined");
  for (const auto& [name, value] : arguments.named) {
    size_t i = 0;
    while (i < count && (macro.parameters[i].name != name || given[i] != nullptr)) ++i;
    if (i < count) {
      given[i] = &value;
    } else if (name == "caller" && macro.uses_caller) {
      caller = value;
    } else if (macro.uses_kwargs) {
      extra.set(Value::string(name), value, work_);
    } else {
      fail(fmt::format("macro '{}' takes no keyword argument '{}'", macro.name, name));
    }
  }
  if (macro.uses_caller) scope_->set("caller", caller);
  if (macro.uses_kwargs) scope_->set("kwargs", make_dict(std::move(extra)));
  if (macro.uses_varargs) {
    const auto first = static_cast<ptrdiff_t>(std::min(count, arguments.positional.size()));
    scope_->set(
        "varargs",
        make_sequence(SequenceKind::kTuple,
                      {arguments.positional.begin() + first, arguments.positional.end()}, work_));
  }
  // All parameters are there, if undefined, when the defaults are made: none of these can mean a
  // variable of the same name outside.
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = macro.parameters[i].name;
    scope_->set(name, given[i] != nullptr
                          ? *given[i]
                          : Value::undefined(fmt::format("'{}' is undefined", name)));
  }
  for (size_t i = 0; i < count; ++i) {
    const auto& [name, fallback] = macro.parameters[i];
    if (given[i] != nullptr) continue;
    scope_->set(name, fallback != nullptr
                          ? evaluate(*fallback)
                          : Value::undefined(fmt::format("parameter '{}' was not provided", name)));
  }
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  work_.spend(1);
  if (callee.is_undefined()) fail(callee.undefined_message());
  if (const Callable* callable = callee.as_callable()) return callable->call(*this, arguments);
  if (const Object* object = callee.as_object()) {
    if (std::optional<Value> result = object->call(*this, arguments)) return *std::move(result);
  }
  fail(fmt::format("'{}' object is not callable", type_name(callee)));
}

}  // namespace tandem::jinja
