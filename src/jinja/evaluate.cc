// The expression half of the interpreter.
#include <fmt/format.h>

#include "jinja/builtins.h"
#include "jinja/compare.h"
#include "jinja/interpreter.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/run.h"
#include "jinja/unicode.h"

namespace tandem::jinja {

Value Interpreter::evaluate(const Expression& expression) {
  work_.spend(1);
  const Restore<int> deeper(depth_, depth_ + 1);
  check_depth();
  const int outer_line = std::exchange(line_, expression.line);
  Value value = std::visit([this](const auto& node) { return evaluate(node); }, expression.node);
  line_ = outer_line;  // not on failure, which then tells the line of this expression
  return value;
}

Value Interpreter::evaluate(const Constant& constant) { return constant.value; }

Value Interpreter::evaluate(const Name& name) { return lookup(name.name); }

Value Interpreter::lookup(const std::string& name) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    work_.spend(static_cast<int64_t>(scope->variables.size() / 8) + 1);
    if (const Value* value = scope->find(name)) return *value;
  }
  if (const std::optional<Value> global = find_global(name)) return *global;
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

Value Interpreter::evaluate(const ListLiteral& list) {
  std::vector<Value> items;
  for (const ExpressionPtr& item : list.items) items.push_back(evaluate(*item));
  return make_list(std::move(items), work_);
}

Value Interpreter::evaluate(const TupleLiteral& tuple) {
  std::vector<Value> items;
  for (const ExpressionPtr& item : tuple.items) items.push_back(evaluate(*item));
  return make_sequence(SequenceKind::kTuple, std::move(items), work_);
}

Value Interpreter::evaluate(const DictLiteral& literal) {
  Dict dict;
  for (const auto& [key, value] : literal.entries) {
    Value made_key = evaluate(*key);
    dict.set(std::move(made_key), evaluate(*value), work_);
  }
  return make_dict(std::move(dict));
}

Value Interpreter::evaluate(const Attribute& node) {
  return attribute(evaluate(*node.object), node.name);
}

Value Interpreter::evaluate(const Item& node) {
  const Value object = evaluate(*node.object);
  return item(object, evaluate(*node.key));
}

Value Interpreter::evaluate(const Slice& slice) {
  const Value object = evaluate(*slice.object);
  SliceBounds bounds;
  if (slice.start != nullptr) bounds.start = evaluate(*slice.start);
  if (slice.stop != nullptr) bounds.stop = evaluate(*slice.stop);
  if (slice.step != nullptr) bounds.step = evaluate(*slice.step);
  return apply_slice(object, bounds, work_);
}

Arguments Interpreter::evaluate(const CallArguments& call) {
  using Kind = CallArguments::Argument::Kind;
  Arguments arguments;
  for (const CallArguments::Argument& argument : call.arguments) {
    Value value = evaluate(*argument.value);
    if (argument.kind == Kind::kPositional) {
      arguments.positional.push_back(std::move(value));
    } else if (argument.kind == Kind::kNamed) {
      arguments.named.emplace_back(argument.name, std::move(value));
    } else if (argument.kind == Kind::kUnpackList) {
      for (Value& item : items_of(value, work_)) arguments.positional.push_back(std::move(item));
    } else {
      const Dict* dict = value.as_dict();
      if (dict == nullptr)
        fail(fmt::format("argument after ** must be a mapping, not {}", type_name(value)));
      for (const Dict::Entry& entry : dict->entries()) {
        work_.allocate(sizeof(Dict::Entry));
        arguments.named.emplace_back(require_text(entry.key, "a keyword").text, entry.value);
      }
    }
  }
  return arguments;
}

Value Interpreter::evaluate(const Call& call_node) { return evaluate_call(call_node, nullptr); }

// A method is called without making a bound one first.
Value Interpreter::evaluate_call(const Call& node, const Value* caller) {
  const auto* attribute_node = std::get_if<Attribute>(&node.callee->node);
  Value object;
  Value callee;
  MethodFunction method = nullptr;
  if (attribute_node == nullptr) {
    callee = evaluate(*node.callee);
  } else {
    object = evaluate(*attribute_node->object);
    method = find_method(object, attribute_node->name);
    if (method == nullptr) callee = attribute(object, attribute_node->name);
  }
  Arguments arguments = evaluate(node.arguments);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  work_.spend(1);
  return method != nullptr ? method(*this, object, arguments) : call(callee, arguments);
}

Value Interpreter::evaluate(const Filter& node) {
  const Value input =
      node.input != nullptr ? evaluate(*node.input) : filter_input_.value_or(Value());
  return filter(node.name, input, evaluate(node.arguments));
}

Value Interpreter::evaluate(const Test& node) {
  const Value input = evaluate(*node.input);
  return Value::boolean(test(node.name, input, evaluate(node.arguments)));
}

Value Interpreter::filter(std::string_view name, const Value& input, const Arguments& arguments) {
  work_.spend(1);
  const FilterFunction function = find_filter(name);
  if (function == nullptr && is_filter_of_jinja2(name)) {
    fail(fmt::format("jinja2's filter '{}' is not supported in chat templates.", name));
  }
  if (function == nullptr) fail(fmt::format("No filter named '{}'.", name));
  return function(*this, input, arguments);
}

bool Interpreter::test(std::string_view name, const Value& input, const Arguments& arguments) {
  work_.spend(1);
  const TestFunction function = find_test(name);
  if (function == nullptr) fail(fmt::format("No test named '{}'.", name));
  return function(*this, input, arguments);
}

Value Interpreter::evaluate(const Unary& unary) {
  return apply_unary(unary.operation, evaluate(*unary.operand));
}

Value Interpreter::evaluate(const Binary& binary) {
  const Value left = evaluate(*binary.left);
  return apply_binary(binary.operation, left, evaluate(*binary.right), work_);
}

// Gives the operand that decided, as Python does.
Value Interpreter::evaluate(const Logic& logic) {
  Value left = evaluate(*logic.left);
  const bool decided = is_truthy(left) == (logic.operation == LogicOperator::kOr);
  return decided ? left : evaluate(*logic.right);
}

Value Interpreter::evaluate(const Comparison& comparison) {
  Value left = evaluate(*comparison.first);
  for (const auto& [operation, operand] : comparison.rest) {
    Value right = evaluate(*operand);
    if (!apply_compare(operation, left, right, work_)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate(const Concatenation& concatenation) {
  std::string text;
  for (const ExpressionPtr& part : concatenation.parts) {
    const std::string piece = to_text(evaluate(*part), work_);
    work_.allocate(piece.size());
    text += piece;
  }
  return make_string(std::move(text), work_);
}

Value Interpreter::evaluate(const Conditional& conditional) {
  if (is_truthy(evaluate(*conditional.condition))) return evaluate(*conditional.value);
  if (conditional.otherwise != nullptr) return evaluate(*conditional.otherwise);
  return Value::undefined(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined.",
      line_));
}

// Python's attributes come before the keys of a dict: {"items": 1}.items is the method.
Value Interpreter::attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) fail(object.undefined_message());
  if (const Object* plain = object.as_object()) {
    if (const std::optional<Value> found = plain->find(name)) return *found;
  }
  const bool is_dunder =
      name.size() > 4 && name.substr(0, 2) == "__" && name.substr(name.size() - 2) == "__";
  if (is_dunder || is_forbidden_method(object, name)) {
    return Value::undefined(fmt::format("access to attribute {} of {} object is unsafe.",
                                        python_quoted(name), python_quoted(type_name(object))));
  }
  if (const MethodFunction method = find_method(object, name)) {
    work_.allocate(256);
    return Value(std::make_shared<const Callable>(
        Callable{std::string(name), "builtin_function_or_method",
                 [object, method](Interpreter& interpreter, const Arguments& arguments) {
                   return method(interpreter, object, arguments);
                 }}));
  }
  if (const Sequence* group = object.as_kind(SequenceKind::kGroup)) {
    if (name == "grouper") return group->items[0];
    if (name == "list") return group->items[1];
  }
  if (const Range* range = object.as_range()) {
    if (name == "start") return Value::integer(range->start);
    if (name == "stop") return Value::integer(range->stop);
    if (name == "step") return Value::integer(range->step);
  }
  if (const Callable* callable = object.as_callable(); callable != nullptr && name == "name") {
    return Value::string(callable->name);
  }
  if (const Dict* dict = object.as_dict()) {
    work_.spend_on_bytes(dict->size());
    if (const Value* value = dict->find(name)) return *value;
  }
  return Value::undefined(fmt::format("{} has no attribute {}", python_quoted(object_name(object)),
                                      python_quoted(name)));
}

Value Interpreter::item(const Value& object, const Value& key) {
  if (object.is_undefined()) fail(object.undefined_message());
  const auto no_item = [&] {
    return Value::undefined(
        fmt::format("{} has no element {}", object_name(object), to_repr(key, work_)));
  };
  const std::optional<Int> index = key.as_integer();
  if (const Dict* dict = object.as_dict()) {
    const bool hashable = !key.is_dict() && key.as_kind(SequenceKind::kList) == nullptr;
    if (const Value* value = hashable ? dict->find(key, work_) : nullptr) return *value;
  } else if (index) {
    const auto resolve = [&](int64_t length) -> std::optional<size_t> {
      const Int at = *index < 0 ? *index + length : *index;
      if (at < 0 || at >= length) return std::nullopt;
      return static_cast<size_t>(at);
    };
    if (const Text* text = object.as_text()) {
      const auto at = resolve(length_of(object, work_));
      if (!at) return no_item();
      const size_t begin = byte_offset(text->text, *at);
      return make_string_like(*text, text->text.substr(begin, decode_at(text->text, begin).bytes),
                              work_);
    }
    const Sequence* sequence = object.as_sequence();
    if (sequence != nullptr &&
        (sequence->kind == SequenceKind::kList || sequence->kind == SequenceKind::kTuple ||
         sequence->kind == SequenceKind::kGroup)) {
      const auto at = resolve(static_cast<int64_t>(sequence->items.size()));
      return at ? sequence->items[*at] : no_item();
    }
    if (const Range* range = object.as_range()) {
      const auto at = resolve(range->size());
      return at ? Value::integer(range->start + static_cast<int64_t>(*at) * range->step)
                : no_item();
    }
  }
  if (const Text* name = key.as_text()) return attribute(object, name->text);
  return no_item();
}

}  // namespace tandem::jinja
