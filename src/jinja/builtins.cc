#include "jinja/builtins.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "jinja/compare.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/strftime.h"
#include "jinja/unicode.h"

namespace tandem::jinja {

Bound::Bound(const Arguments& arguments, std::string_view function,
             std::initializer_list<std::string_view> names, size_t required)
    : values_(names.size(), nullptr) {
  if (arguments.positional.size() > names.size()) {
    fail(fmt::format("{}() takes at most {} argument(s) ({} given)", function, names.size(),
                     arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    size_t i = 0;
    while (i < names.size() && *(names.begin() + i) != name) ++i;
    if (i == names.size())
      fail(fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
    if (values_[i] != nullptr)
      fail(fmt::format("{}() got multiple values for argument '{}'", function, name));
    values_[i] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) {
      fail(fmt::format("{}() is missing its argument '{}'", function, *(names.begin() + i)));
    }
  }
}

const Text& require_text(const Value& value, std::string_view what) {
  if (value.is_undefined()) fail(value.undefined_message());
  if (const Text* text = value.as_text()) return *text;
  fail(fmt::format("{} must be str, not {}", what, type_name(value)));
}

Text soft_text(const Value& input, Work& work) {
  if (const Text* text = input.as_text()) return *text;
  return {to_text(input, work), false};
}

FilterFunction find_filter(std::string_view name) {
  for (const auto find :
       {find_text_filter, find_sequence_filter, find_selection_filter, find_number_filter}) {
    if (const FilterFunction function = find(name)) return function;
  }
  return nullptr;
}

bool is_filter_of_jinja2(std::string_view name) {
  constexpr std::string_view kNames[] = {"filesizeformat", "pprint", "random",   "striptags",
                                         "urlencode",      "urlize", "wordwrap", "xmlattr"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

namespace {

Value make_range(Interpreter& interpreter, const Arguments& arguments) {
  const Bound bound(arguments, "range", {"start", "stop", "step"}, 1);
  constexpr int64_t kLargest = int64_t{1} << 40;
  const auto bounded = [&](const Value& value) {
    const int64_t number = to_count(value, "an argument of range()");
    if (number > kLargest || number < -kLargest) fail("an argument of range() is too large");
    return number;
  };
  Range range{0, bounded(bound.at(0)), 1};
  if (bound.find(1) != nullptr) range = {range.stop, bounded(bound.at(1)), 1};
  if (bound.find(2) != nullptr) range.step = bounded(bound.at(2));
  if (range.step == 0) fail("range() arg 3 must not be zero");
  const int64_t limit = interpreter.work().limits().max_range_items;
  if (range.size() > limit) {
    fail(
        fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", limit));
  }
  return Value(std::make_shared<const Range>(range));
}

// Entries of a mapping, or of a list of pairs, then the named arguments: how dict() and namespace()
// are called.
Dict make_entries(Interpreter& interpreter, std::string_view function, const Arguments& arguments) {
  Work& work = interpreter.work();
  Dict dict;
  if (arguments.positional.size() > 1)
    fail(fmt::format("{}() expected at most 1 argument", function));
  if (arguments.positional.size() == 1) {
    const Value& source = arguments.positional[0];
    if (source.is_undefined()) fail(source.undefined_message());
    if (const Dict* other = source.as_dict()) {
      for (const Dict::Entry& entry : other->entries()) dict.set(entry.key, entry.value, work);
    } else {
      for (const Value& pair : items_of(source, work)) {
        std::vector<Value> both = items_of(pair, work);
        if (both.size() != 2) fail(fmt::format("{}() needs pairs of a key and a value", function));
        dict.set(both[0], both[1], work);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(Value::string(name), value, work);
  return dict;
}

Value make_dict_value(Interpreter& interpreter, const Arguments& arguments) {
  return make_dict(make_entries(interpreter, "dict", arguments));
}

Value make_namespace(Interpreter& interpreter, const Arguments& arguments) {
  const Dict dict = make_entries(interpreter, "namespace", arguments);
  auto made = std::make_unique<Object>("Namespace");
  made->is_namespace = true;
  for (const Dict::Entry& entry : dict.entries()) {
    made->attributes.emplace_back(require_text(entry.key, "the name of an attribute").text,
                                  entry.value);
  }
  return Value(interpreter.own(std::move(made)));
}

Value raise_exception(Interpreter& interpreter, const Arguments& arguments) {
  const Bound bound(arguments, "raise_exception", {"message"}, 1);
  throw Failure{FailureKind::kTemplate, to_text(bound.at(0), interpreter.work())};
}

Value strftime_now(Interpreter& interpreter, const Arguments& arguments) {
  const Bound bound(arguments, "strftime_now", {"format"}, 1);
  const std::string& format = require_text(bound.at(0), "the format of strftime_now").text;
  return make_string(format_time(format, interpreter.now()), interpreter.work());
}

Value callable(std::string name, std::function<Value(Interpreter&, const Arguments&)> function) {
  return Value(
      std::make_shared<const Callable>(Callable{std::move(name), "function", std::move(function)}));
}

// cycler(a, b): next() gives a, b, a ...; current is what it gives next.
class Cycler final : public Object {
 public:
  explicit Cycler(std::vector<Value> items) : Object("Cycler"), items_(std::move(items)) {}

  [[nodiscard]] std::optional<Value> find(std::string_view name) const override {
    if (name == "current") return items_[at_];
    if (name == "next") {
      return callable("next", [this](Interpreter&, const Arguments&) {
        const Value value = items_[at_];
        at_ = (at_ + 1) % items_.size();
        return value;
      });
    }
    if (name == "reset") {
      return callable("reset", [this](Interpreter&, const Arguments&) {
        at_ = 0;
        return Value();
      });
    }
    return std::nullopt;
  }

 private:
  const std::vector<Value> items_;
  mutable size_t at_ = 0;
};

Value make_cycler(Interpreter& interpreter, const Arguments& arguments) {
  if (arguments.positional.empty()) fail("at least one item has to be provided");
  return Value(interpreter.own(std::make_unique<Cycler>(arguments.positional)));
}

// joiner(sep): nothing the first time it is called, then sep.
Value make_joiner(Interpreter& interpreter, const Arguments& arguments) {
  const Bound bound(arguments, "joiner", {"sep"});
  Value separator = bound.get(0, Value::string(", "));
  interpreter.work().allocate(256);
  return callable(
      "joiner", [separator, used = std::make_shared<bool>(false)](Interpreter&, const Arguments&) {
        return std::exchange(*used, true) ? separator : Value::string("");
      });
}

bool is_sequence(const Value& value) {
  const Sequence* sequence = value.as_sequence();
  const bool indexed = sequence != nullptr && (sequence->kind == SequenceKind::kList ||
                                               sequence->kind == SequenceKind::kTuple ||
                                               sequence->kind == SequenceKind::kGroup);
  return indexed || value.is_string() || value.is_dict() || value.as_range() != nullptr ||
         value.is_undefined();
}

// value % 2 == remainder
template <Int kRemainder>
bool leaves(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "the test", {});
  Work& work = interpreter.work();
  const Value rest = apply_binary(BinaryOperator::kModulo, value, Value::integer(2), work);
  return equals(rest, Value::integer(kRemainder), work);
}

bool is_divisible(const Value& value, const Value& by, Work& work) {
  return !is_truthy(apply_binary(BinaryOperator::kModulo, value, by, work));
}

template <CompareOperator kOperation>
bool compare_test(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "the test", {"other"}, 1);
  return apply_compare(kOperation, input, bound.at(0), interpreter.work());
}

// Tests of the value alone.
template <bool (*kCheck)(const Value&)>
bool simple_test(Interpreter&, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "the test", {});
  return kCheck(input);
}

bool is_same_object(const Value& left, const Value& right) {
  if (left.is_none() || right.is_none()) return left.is_none() && right.is_none();
  if (left.as_bool() != nullptr && right.as_bool() != nullptr)
    return *left.as_bool() == *right.as_bool();
  if (left.as_object() != nullptr) return left.as_object() == right.as_object();
  if (left.is_plain_integer() && right.is_plain_integer())
    return left.as_integer() == right.as_integer();
  if (left.as_sequence() != nullptr) return left.as_sequence() == right.as_sequence();
  if (left.is_dict()) return left.as_dict() == right.as_dict();
  return left.is_string() && left.as_text() == right.as_text();
}

bool is_in_case(const Value& value, std::string (*change)(std::string_view), Work& work) {
  const std::string text = to_text(value, work);
  bool cased = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_at(text, at);
    cased = cased || is_cased(point.code);
    at += point.bytes;
  }
  return cased && change(text) == text;
}

constexpr NamedFunction<TestFunction> kTests[] = {
    {"defined", simple_test<[](const Value& v) { return !v.is_undefined(); }>},
    {"undefined", simple_test<[](const Value& v) { return v.is_undefined(); }>},
    {"none", simple_test<[](const Value& v) { return v.is_none(); }>},
    {"boolean", simple_test<[](const Value& v) { return v.as_bool() != nullptr; }>},
    {"true", simple_test<[](const Value& v) { return v.as_bool() != nullptr && *v.as_bool(); }>},
    {"false", simple_test<[](const Value& v) { return v.as_bool() != nullptr && !*v.as_bool(); }>},
    {"integer", simple_test<[](const Value& v) { return v.is_plain_integer(); }>},
    {"float", simple_test<[](const Value& v) { return v.as_real() != nullptr; }>},
    {"number", simple_test<[](const Value& v) { return v.as_number().has_value(); }>},
    {"string", simple_test<[](const Value& v) { return v.is_string(); }>},
    {"mapping", simple_test<[](const Value& v) { return v.is_dict(); }>},
    {"iterable", simple_test<[](const Value& v) { return is_iterable(v); }>},
    {"sequence", simple_test<is_sequence>},
    {"callable",
     simple_test<[](const Value& v) { return v.as_callable() != nullptr || v.is_undefined(); }>},
    {"escaped",
     simple_test<[](const Value& v) { return v.is_string() && v.as_text()->is_markup; }>},
    {"odd", leaves<1>},
    {"even", leaves<0>},
    {"lower", [](Interpreter& i, const Value& v,
                 const Arguments&) { return is_in_case(v, to_lower, i.work()); }},
    {"upper", [](Interpreter& i, const Value& v,
                 const Arguments&) { return is_in_case(v, to_upper, i.work()); }},
    {"divisibleby",
     [](Interpreter& i, const Value& v, const Arguments& arguments) {
       return is_divisible(v, Bound(arguments, "divisibleby", {"num"}, 1).at(0), i.work());
     }},
    {"sameas",
     [](Interpreter&, const Value& v, const Arguments& arguments) {
       return is_same_object(v, Bound(arguments, "sameas", {"other"}, 1).at(0));
     }},
    {"filter", [](Interpreter& i, const Value& v,
                  const Arguments&) { return find_filter(to_text(v, i.work())) != nullptr; }},
    {"test", [](Interpreter& i, const Value& v,
                const Arguments&) { return find_test(to_text(v, i.work())) != nullptr; }},
    {"in", compare_test<CompareOperator::kIn>},
    {"eq", compare_test<CompareOperator::kEqual>},
    {"==", compare_test<CompareOperator::kEqual>},
    {"equalto", compare_test<CompareOperator::kEqual>},
    {"ne", compare_test<CompareOperator::kNotEqual>},
    {"!=", compare_test<CompareOperator::kNotEqual>},
    {"lt", compare_test<CompareOperator::kLess>},
    {"<", compare_test<CompareOperator::kLess>},
    {"lessthan", compare_test<CompareOperator::kLess>},
    {"le", compare_test<CompareOperator::kLessEqual>},
    {"<=", compare_test<CompareOperator::kLessEqual>},
    {"gt", compare_test<CompareOperator::kGreater>},
    {">", compare_test<CompareOperator::kGreater>},
    {"greaterthan", compare_test<CompareOperator::kGreater>},
    {"ge", compare_test<CompareOperator::kGreaterEqual>},
    {">=", compare_test<CompareOperator::kGreaterEqual>},
};

}  // namespace

TestFunction find_test(std::string_view name) { return find_named(kTests, name); }

std::optional<Value> find_global(std::string_view name) {
  static const std::vector<std::pair<std::string, Value>> globals = [] {
    std::vector<std::pair<std::string, Value>> made;
    const auto add = [&](const char* function_name,
                         Value (*function)(Interpreter&, const Arguments&)) {
      made.emplace_back(function_name, callable(function_name, function));
    };
    add("range", make_range);
    add("dict", make_dict_value);
    add("namespace", make_namespace);
    add("raise_exception", raise_exception);
    add("strftime_now", strftime_now);
    add("cycler", make_cycler);
    add("joiner", make_joiner);
    return made;
  }();
  for (const auto& [global, value] : globals) {
    if (global == name) return value;
  }
  return std::nullopt;
}

}  // namespace tandem::jinja
