// Filters that apply other filters and tests to each item: map, select, reject, selectattr,
// rejectattr.
#include <fmt/format.h>

#include "jinja/builtins.h"

namespace tandem::jinja {
namespace {

const Value* find_argument(const Arguments& arguments, std::string_view name) {
  for (const auto& [key, value] : arguments.named) {
    if (key == name) return &value;
  }
  return nullptr;
}

Arguments without_first(const Arguments& arguments, size_t count) {
  const auto first = static_cast<ptrdiff_t>(count);
  return {{arguments.positional.begin() + first, arguments.positional.end()}, arguments.named};
}

Value map(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  Work& work = interpreter.work();
  std::vector<Value> mapped;
  if (!is_truthy(input)) return make_sequence(SequenceKind::kGenerator, {}, work);
  const Value* attribute = find_argument(arguments, "attribute");
  if (arguments.positional.empty() && attribute != nullptr) {
    const Bound bound(arguments, "map", {"attribute", "default"}, 1);
    const Value fallback = bound.get(1, Value());
    for (const Value& item : items_of(input, work)) {
      mapped.push_back(
          attribute_of(interpreter, item, *attribute, fallback.is_none() ? nullptr : &fallback));
    }
    return make_sequence(SequenceKind::kGenerator, std::move(mapped), work);
  }
  if (arguments.positional.empty()) fail("map requires a filter argument");
  const std::string& name = require_text(arguments.positional[0], "the name of a filter").text;
  const Arguments rest = without_first(arguments, 1);
  for (const Value& item : items_of(input, work))
    mapped.push_back(interpreter.filter(name, item, rest));
  return make_sequence(SequenceKind::kGenerator, std::move(mapped), work);
}

enum class Keep { kMatching, kOthers };
enum class Subject { kItem, kAttribute };

template <Keep kKeep, Subject kSubject>
Value choose(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  Work& work = interpreter.work();
  std::vector<Value> kept;
  if (!is_truthy(input)) return make_sequence(SequenceKind::kGenerator, {}, work);
  constexpr size_t kBeforeTest = kSubject == Subject::kAttribute ? 1 : 0;
  if (arguments.positional.size() < kBeforeTest) fail("Missing parameter for attribute name");
  const bool has_test = arguments.positional.size() > kBeforeTest;
  const std::string name =
      has_test ? require_text(arguments.positional[kBeforeTest], "the name of a test").text
               : std::string();
  const Arguments rest = has_test ? without_first(arguments, kBeforeTest + 1) : Arguments();
  for (Value& item : items_of(input, work)) {
    const Value subject = kSubject == Subject::kAttribute
                              ? attribute_of(interpreter, item, arguments.positional[0], nullptr)
                              : item;
    const bool matches = has_test ? interpreter.test(name, subject, rest) : is_truthy(subject);
    if (matches == (kKeep == Keep::kMatching)) kept.push_back(std::move(item));
  }
  return make_sequence(SequenceKind::kGenerator, std::move(kept), work);
}

constexpr NamedFunction<FilterFunction> kSelectionFilters[] = {
    {"map", map},
    {"select", choose<Keep::kMatching, Subject::kItem>},
    {"reject", choose<Keep::kOthers, Subject::kItem>},
    {"selectattr", choose<Keep::kMatching, Subject::kAttribute>},
    {"rejectattr", choose<Keep::kOthers, Subject::kAttribute>},
};

}  // namespace

FilterFunction find_selection_filter(std::string_view name) {
  return find_named(kSelectionFilters, name);
}

}  // namespace tandem::jinja
