// Filters over lists and dicts, and default().
#include <fmt/format.h>

#include <algorithm>

#include "jinja/builtins.h"
#include "jinja/compare.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace tandem::jinja {

Value attribute_of(Interpreter& interpreter, const Value& item, const Value& path,
                   const Value* fallback) {
  Value value = item;
  const auto step = [&](const Value& key) {
    value = interpreter.item(value, key);
    if (fallback != nullptr && value.is_undefined()) value = *fallback;
  };
  const Text* text = path.as_text();
  if (text == nullptr) {
    step(path);
    return value;
  }
  std::string_view rest = text->text;
  while (true) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    const bool is_index = !part.empty() && part.size() < 10 &&
                          part.find_first_not_of("0123456789") == std::string::npos;
    step(is_index ? Value::integer(std::stol(std::string(part)))
                  : Value::string(std::string(part)));
    if (dot == rest.size()) return value;
    rest.remove_prefix(dot + 1);
  }
}

namespace {

enum class Case { kSensitive, kIgnored };

Case case_rule(const Bound& bound, size_t index) {
  return bound.flag(index, false) ? Case::kSensitive : Case::kIgnored;
}

// What a filter sorts or groups by: the item or its attribute, in lower case unless case matters.
Value key_of(Interpreter& interpreter, const Value& item, const Value& attribute, Case rule,
             const Value* fallback) {
  Value key = attribute.is_none() ? item : attribute_of(interpreter, item, attribute, fallback);
  if (rule == Case::kIgnored && key.is_string()) {
    return make_string(to_lower(key.as_text()->text), interpreter.work());
  }
  return key;
}

struct Keyed {
  Value key;
  Value item;
};

void sort_keyed(std::vector<Keyed>& entries, bool descending, Work& work) {
  merge_sort(entries, [&](const Keyed& a, const Keyed& b) {
    return descending ? less(b.key, a.key, "<", work) : less(a.key, b.key, "<", work);
  });
}

Value length(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "length", {});
  return Value::integer(length_of(input, interpreter.work()));
}

Value fall_back(Interpreter&, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "default", {"default_value", "boolean"});
  const bool use_default = input.is_undefined() || (bound.flag(1, false) && !is_truthy(input));
  return use_default ? bound.get(0, Value::string("")) : input;
}

Value first(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "first", {});
  const Value nothing = Value::undefined("No first item, sequence was empty.");
  if (const Sequence* sequence = input.as_sequence()) {  // takes one item of a generator, not all
    if (sequence->consumed >= sequence->items.size()) return nothing;
    const Value& item = sequence->items[sequence->consumed];
    if (sequence->kind == SequenceKind::kGenerator) ++sequence->consumed;
    return item;
  }
  const std::vector<Value> items = items_of(input, interpreter.work());
  return items.empty() ? nothing : items.front();
}

Value last(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "last", {});
  if (input.as_kind(SequenceKind::kGenerator) != nullptr)
    fail("'generator' object is not reversible");
  if (const Sequence* sequence = input.as_sequence();
      sequence != nullptr && !sequence->items.empty()) {
    return sequence->items.back();
  }
  const std::vector<Value> items = items_of(input, interpreter.work());
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value list(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "list", {});
  return make_list(items_of(input, interpreter.work()), interpreter.work());
}

Value items(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "items", {});
  Work& work = interpreter.work();
  std::vector<Value> pairs;
  if (!input.is_undefined()) {
    const Dict* dict = input.as_dict();
    if (dict == nullptr) fail("Can only get item pairs from a mapping.");
    for (const Dict::Entry& entry : dict->entries()) {
      pairs.push_back(make_sequence(SequenceKind::kTuple, {entry.key, entry.value}, work));
    }
  }
  return make_sequence(SequenceKind::kGenerator, std::move(pairs), work);
}

Value reverse(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "reverse", {});
  Work& work = interpreter.work();
  if (input.is_string()) return apply_slice(input, {Value(), Value(), Value::integer(-1)}, work);
  // As Python's reversed(): what can only be read forwards becomes a list.
  const bool forwards_only = input.as_kind(SequenceKind::kGenerator) != nullptr;
  std::vector<Value> reversed = items_of(input, work);
  std::reverse(reversed.begin(), reversed.end());
  return make_sequence(forwards_only ? SequenceKind::kList : SequenceKind::kGenerator,
                       std::move(reversed), work);
}

std::vector<Value> items_of_keyed(const std::vector<Keyed>& entries) {
  std::vector<Value> sorted;
  for (const Keyed& entry : entries) sorted.push_back(entry.item);
  return sorted;
}

// "a,b.c" sorts by several attributes: the key is a list of them.
Value sort_key(Interpreter& interpreter, const Value& item, const Value& attribute, Case rule) {
  const Text* names = attribute.as_text();
  if (names == nullptr || names->text.find(',') == std::string::npos) {
    return key_of(interpreter, item, attribute, rule, nullptr);
  }
  std::vector<Value> keys;
  std::string_view rest = names->text;
  while (true) {
    const size_t comma = std::min(rest.find(','), rest.size());
    keys.push_back(key_of(interpreter, item, Value::string(std::string(rest.substr(0, comma))),
                          rule, nullptr));
    if (comma == rest.size()) return make_list(std::move(keys), interpreter.work());
    rest.remove_prefix(comma + 1);
  }
}

Value sort(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "sort", {"reverse", "case_sensitive", "attribute"});
  Work& work = interpreter.work();
  std::vector<Keyed> entries;
  for (Value& item : items_of(input, work)) {
    Value key = sort_key(interpreter, item, bound.get(2, Value()), case_rule(bound, 1));
    entries.push_back({std::move(key), std::move(item)});
  }
  // Its keys are lists of attributes, which look for what is equal before they ask for an order:
  // many of None or undefined keep theirs.
  const bool descending = bound.flag(0, false);
  merge_sort(entries, [&](const Keyed& a, const Keyed& b) {
    if (equals(a.key, b.key, work)) return false;
    return descending ? less(b.key, a.key, "<", work) : less(a.key, b.key, "<", work);
  });
  return make_list(items_of_keyed(entries), work);
}

Value sort_dict(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  Work& work = interpreter.work();
  if (input.is_undefined()) fail(input.undefined_message());
  const Dict* dict = input.as_dict();
  if (dict == nullptr) fail(fmt::format("'{}' object has no attribute 'items'", type_name(input)));
  const std::string by = to_text(bound.get(1, Value::string("key")), work);
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  std::vector<Keyed> entries;
  for (const Dict::Entry& entry : dict->entries()) {
    const Value& sorted_by = by == "key" ? entry.key : entry.value;
    entries.push_back({key_of(interpreter, sorted_by, Value(), case_rule(bound, 0), nullptr),
                       make_sequence(SequenceKind::kTuple, {entry.key, entry.value}, work)});
  }
  sort_keyed(entries, bound.flag(2, false), work);
  return make_list(items_of_keyed(entries), work);
}

Value unique(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "unique", {"case_sensitive", "attribute"});
  Work& work = interpreter.work();
  Dict seen;
  std::vector<Value> kept;
  for (const Value& item : items_of(input, work)) {
    Value key = key_of(interpreter, item, bound.get(1, Value()), case_rule(bound, 0), nullptr);
    if (seen.find(key, work) != nullptr) continue;
    seen.set(std::move(key), Value(), work);
    kept.push_back(item);
  }
  return make_sequence(SequenceKind::kGenerator, std::move(kept), work);
}

Value group_by(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  Work& work = interpreter.work();
  const Case rule = case_rule(bound, 2);
  const Value* fallback =
      bound.find(1) != nullptr && !bound.find(1)->is_none() ? bound.find(1) : nullptr;
  std::vector<Keyed> entries;
  for (Value& item : items_of(input, work)) {
    Value key = key_of(interpreter, item, bound.at(0), rule, fallback);
    entries.push_back({std::move(key), std::move(item)});
  }
  sort_keyed(entries, false, work);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < entries.size();) {
    size_t end = begin;
    std::vector<Value> members;
    while (end < entries.size() && equals(entries[end].key, entries[begin].key, work)) {
      members.push_back(entries[end++].item);
    }
    if (end == begin) members.push_back(entries[end++].item);  // NaN is not even equal to itself
    // Without case, a group is named as its first member writes it.
    Value grouper = attribute_of(interpreter, entries[begin].item, bound.at(0), fallback);
    groups.push_back(make_sequence(
        SequenceKind::kGroup, {std::move(grouper), make_list(std::move(members), work)}, work));
    begin = end;
  }
  return make_list(std::move(groups), work);
}

Value batch(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "batch", {"linecount", "fill_with"}, 1);
  Work& work = interpreter.work();
  const auto size = static_cast<size_t>(std::max<int64_t>(1, to_count(bound.at(0), "linecount")));
  const Value fill = bound.get(1, Value());
  std::vector<Value> rows;
  std::vector<Value> row;
  for (const Value& item : items_of(input, work)) {
    if (row.size() == size) rows.push_back(make_list(std::exchange(row, {}), work));
    row.push_back(item);
  }
  if (!row.empty()) {
    if (!fill.is_none() && row.size() < size) {
      work.allocate(size, sizeof(Value));
      row.resize(size, fill);
    }
    rows.push_back(make_list(std::move(row), work));
  }
  return make_sequence(SequenceKind::kGenerator, std::move(rows), work);
}

// slice(n): n lists of nearly the same length.
Value slice(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "slice", {"slices", "fill_with"}, 1);
  Work& work = interpreter.work();
  const std::vector<Value> all = items_of(input, work);
  const int64_t slices = to_count(bound.at(0), "slices");
  if (slices <= 0) fail("slice() needs at least one slice");
  work.allocate(static_cast<size_t>(slices), 128);
  const auto count = static_cast<size_t>(slices);
  const size_t each = all.size() / count;
  const size_t longer = all.size() % count;
  const Value fill = bound.get(1, Value());
  std::vector<Value> columns;
  size_t begin = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t end = begin + each + (i < longer ? 1 : 0);
    std::vector<Value> column(all.begin() + static_cast<ptrdiff_t>(begin),
                              all.begin() + static_cast<ptrdiff_t>(end));
    if (!fill.is_none() && i >= longer) column.push_back(fill);
    columns.push_back(make_list(std::move(column), work));
    begin = end;
  }
  return make_sequence(SequenceKind::kGenerator, std::move(columns), work);
}

// Python's getattr alone: never an item of a dict.
Value attribute_filter(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "attr", {"name"}, 1);
  const std::string name = to_text(bound.at(0), interpreter.work());
  if (input.is_dict() && find_method(input, name) == nullptr) {
    return Value::undefined(fmt::format("{} has no attribute {}", python_quoted(object_name(input)),
                                        python_quoted(name)));
  }
  return interpreter.attribute(input, name);
}

constexpr NamedFunction<FilterFunction> kSequenceFilters[] = {
    {"length", length},    {"count", length},       {"default", fall_back},
    {"d", fall_back},      {"first", first},        {"last", last},
    {"list", list},        {"items", items},        {"reverse", reverse},
    {"sort", sort},        {"dictsort", sort_dict}, {"unique", unique},
    {"batch", batch},      {"slice", slice},        {"attr", attribute_filter},
    {"groupby", group_by},
};

}  // namespace

FilterFunction find_sequence_filter(std::string_view name) {
  return find_named(kSequenceFilters, name);
}

}  // namespace tandem::jinja
