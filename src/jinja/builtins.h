// Tables of what templates can call by name: filters, tests, methods of str, list and dict, and
// global functions, each as jinja2 and Python define it. The tables are constant; the functions
// work on one rendering through its Interpreter.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "jinja/interpreter.h"
#include "jinja/value.h"

namespace tandem::jinja {

using FilterFunction = Value (*)(Interpreter&, const Value& input, const Arguments&);
using TestFunction = bool (*)(Interpreter&, const Value& input, const Arguments&);
using MethodFunction = Value (*)(Interpreter&, const Value& object, const Arguments&);

template <class Function>
struct NamedFunction {
  std::string_view name;
  Function function;
};

// Null when there is none of that name.
FilterFunction find_filter(std::string_view name);
// True for filters of jinja2 that are left out on purpose: they make HTML, or texts for people.
bool is_filter_of_jinja2(std::string_view name);
TestFunction find_test(std::string_view name);
// A method of `object`'s type.
MethodFunction find_method(const Value& object, std::string_view name);
// True for a method of Python that changes its object, which the sandbox refuses.
bool is_forbidden_method(const Value& object, std::string_view name);
// A global function (range, namespace, dict, raise_exception, strftime_now ...), or nullopt.
std::optional<Value> find_global(std::string_view name);

// Parts of the tables that live in files of their own.
FilterFunction find_text_filter(std::string_view name);
FilterFunction find_sequence_filter(std::string_view name);
FilterFunction find_selection_filter(std::string_view name);
FilterFunction find_number_filter(std::string_view name);
MethodFunction find_text_method(std::string_view name);
MethodFunction find_character_method(std::string_view name);

// Arguments by parameter: positional ones first, then by name. Fails on too many, unknown, repeated
// or (below `required`) missing ones.
class Bound {
 public:
  Bound(const Arguments& arguments, std::string_view function,
        std::initializer_list<std::string_view> names, size_t required = 0);
  // Null when not given.
  [[nodiscard]] const Value* find(size_t index) const { return values_[index]; }
  [[nodiscard]] const Value& at(size_t index) const {
    return *values_[index];
  }  // needs it to be required
  [[nodiscard]] Value get(size_t index, Value fallback) const {
    return values_[index] == nullptr ? std::move(fallback) : *values_[index];
  }
  [[nodiscard]] bool flag(size_t index, bool fallback) const {
    return values_[index] == nullptr ? fallback : is_truthy(*values_[index]);
  }

 private:
  std::vector<const Value*> values_;
};

template <class Function, size_t kSize>
Function find_named(const NamedFunction<Function> (&table)[kSize], std::string_view name) {
  for (const auto& entry : table) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

// What map(attribute=path) takes from an item: item[a][b] for the path "a.b"; digits are indices.
// `fallback` (or null) stands for what is undefined.
Value attribute_of(Interpreter& interpreter, const Value& item, const Value& path,
                   const Value* fallback);
// The text of a str argument; fails for other types, naming `what`.
const Text& require_text(const Value& value, std::string_view what);
// str(input) for filters that take anything; keeps markup.
Text soft_text(const Value& input, Work& work);

}  // namespace tandem::jinja
