// Methods of dict, list, tuple, range and numbers, and which method belongs to which type.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "jinja/builtins.h"
#include "jinja/compare.h"
#include "jinja/operators.h"
#include "jinja/print.h"

namespace tandem::jinja {
namespace {

Value dict_get(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "get", {"key", "default"}, 1);
  const Value* value = object.as_dict()->find(bound.at(0), interpreter.work());
  return value != nullptr ? *value : bound.get(1, Value());
}

Value dict_items(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "items", {});
  std::vector<Value> pairs;
  for (const Dict::Entry& entry : object.as_dict()->entries()) {
    pairs.push_back(
        make_sequence(SequenceKind::kTuple, {entry.key, entry.value}, interpreter.work()));
  }
  return make_sequence(SequenceKind::kItems, std::move(pairs), interpreter.work());
}

Value dict_keys(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "keys", {});
  return make_sequence(SequenceKind::kKeys, items_of(object, interpreter.work()),
                       interpreter.work());
}

Value dict_values(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "values", {});
  std::vector<Value> values;
  for (const Dict::Entry& entry : object.as_dict()->entries()) values.push_back(entry.value);
  return make_sequence(SequenceKind::kValues, std::move(values), interpreter.work());
}

// Nothing changes a value, so a copy is the value itself.
Value copy(Interpreter&, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "copy", {});
  return object;
}

Value list_index(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "index", {"value", "start", "stop"}, 1);
  const std::vector<Value>& items = object.as_sequence()->items;
  const auto length = static_cast<int64_t>(items.size());
  const auto position = [&](size_t index, int64_t fallback) {
    const int64_t at = to_count(bound.get(index, Value::integer(fallback)), "a position");
    return std::clamp<int64_t>(at < 0 ? at + length : at, 0, length);
  };
  const int64_t stop = position(2, length);
  for (int64_t i = position(1, 0); i < stop; ++i) {
    if (equals(items[static_cast<size_t>(i)], bound.at(0), interpreter.work()))
      return Value::integer(i);
  }
  fail(fmt::format("{} is not in list", to_repr(bound.at(0), interpreter.work())));
}

Value list_count(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "count", {"value"}, 1);
  Int found = 0;
  for (const Value& item : object.as_sequence()->items) {
    if (equals(item, bound.at(0), interpreter.work())) ++found;
  }
  return Value::integer(found);
}

Value is_integer(Interpreter&, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "is_integer", {});
  return Value::boolean(std::floor(*object.as_real()) == *object.as_real());
}

Value range_index(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "index", {"value"}, 1);
  Work& work = interpreter.work();
  const std::vector<Value> items = items_of(object, work);
  for (size_t i = 0; i < items.size(); ++i) {
    if (equals(items[i], bound.at(0), work)) return Value::integer(static_cast<Int>(i));
  }
  fail(fmt::format("{} is not in range", to_repr(bound.at(0), work)));
}

Value range_count(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "count", {"value"}, 1);
  return Value::integer(contains(object, bound.at(0), interpreter.work()) ? 1 : 0);
}

constexpr NamedFunction<MethodFunction> kDictMethods[] = {
    {"get", dict_get},       {"items", dict_items}, {"keys", dict_keys},
    {"values", dict_values}, {"copy", copy},
};
constexpr NamedFunction<MethodFunction> kListMethods[] = {
    {"index", list_index}, {"count", list_count}, {"copy", copy}};
constexpr NamedFunction<MethodFunction> kTupleMethods[] = {{"index", list_index},
                                                           {"count", list_count}};
constexpr NamedFunction<MethodFunction> kRangeMethods[] = {{"index", range_index},
                                                           {"count", range_count}};
constexpr NamedFunction<MethodFunction> kRealMethods[] = {{"is_integer", is_integer}};

constexpr std::string_view kForbiddenDictMethods[] = {"clear", "pop", "popitem", "setdefault",
                                                      "update"};
constexpr std::string_view kForbiddenListMethods[] = {"append", "clear",  "extend",  "insert",
                                                      "pop",    "remove", "reverse", "sort"};

template <size_t kSize>
bool is_one_of(const std::string_view (&names)[kSize], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool is_tuple(const Value& value) {
  return value.as_kind(SequenceKind::kTuple) != nullptr ||
         value.as_kind(SequenceKind::kGroup) != nullptr;
}

}  // namespace

MethodFunction find_method(const Value& object, std::string_view name) {
  if (object.is_string()) return find_text_method(name);
  if (object.is_dict()) return find_named(kDictMethods, name);
  if (object.as_kind(SequenceKind::kList) != nullptr) return find_named(kListMethods, name);
  if (is_tuple(object)) return find_named(kTupleMethods, name);
  if (object.as_range() != nullptr) return find_named(kRangeMethods, name);
  if (object.as_real() != nullptr) return find_named(kRealMethods, name);
  return nullptr;
}

bool is_forbidden_method(const Value& object, std::string_view name) {
  if (object.is_dict()) return is_one_of(kForbiddenDictMethods, name);
  return object.as_kind(SequenceKind::kList) != nullptr && is_one_of(kForbiddenListMethods, name);
}

}  // namespace tandem::jinja
