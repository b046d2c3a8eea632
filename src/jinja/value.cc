#include "jinja/value.h"

#include <fmt/format.h>

#include <algorithm>

#include "jinja/compare.h"
#include "jinja/unicode.h"

namespace tandem::jinja {

namespace {
constexpr size_t kIndexFromEntries = 12;  // below, comparing all keys is faster than hashing
}  // namespace

int64_t Range::size() const {
  if (step > 0) return start >= stop ? 0 : (stop - start + step - 1) / step;
  return start <= stop ? 0 : (start - stop - step - 1) / -step;
}

std::optional<Value> Object::find(std::string_view name) const {
  for (const auto& [key, value] : attributes) {
    if (key == name) return value;
  }
  return std::nullopt;
}

void Object::set(std::string_view name, Value value) {
  for (auto& [key, old] : attributes) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  attributes.emplace_back(name, std::move(value));
}

Value Value::string(std::string text) {
  return Value(std::make_shared<const Text>(Text{std::move(text), false}));
}

Value Value::markup(std::string text) {
  return Value(std::make_shared<const Text>(Text{std::move(text), true}));
}

Value Value::undefined(std::string message) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(message))});
}

std::optional<Int> Value::as_integer() const {
  if (const Int* integer = std::get_if<Int>(&any_)) return *integer;
  if (const bool* boolean = as_bool()) return *boolean ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::as_number() const {
  if (const double* real = as_real()) return *real;
  if (const auto integer = as_integer()) return static_cast<double>(*integer);
  return std::nullopt;
}

const Sequence* Value::as_kind(SequenceKind kind) const {
  const Sequence* sequence = as_sequence();
  return sequence != nullptr && sequence->kind == kind ? sequence : nullptr;
}

const std::string& Value::undefined_message() const { return *std::get<Undefined>(any_).message; }

const Dict::Entry* Dict::locate(const Value& key, size_t hash, Work& work) const {
  if (index_.empty()) {
    for (const Entry& entry : entries_) {
      if (equals(entry.key, key, work)) return &entry;
    }
    return nullptr;
  }
  const auto [first, last] = index_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    if (equals(entries_[at->second].key, key, work)) return &entries_[at->second];
  }
  return nullptr;
}

void Dict::set(Value key, Value value, Work& work) {
  const size_t hash = hash_of(key, work);
  depth_ = std::max({depth_, value_depth(key) + 1, value_depth(value) + 1});
  if (depth_ > kMaxValueDepth) fail("a dict is nested too deeply");
  if (const Entry* entry = locate(key, hash, work)) {
    entries_[static_cast<size_t>(entry - entries_.data())].value = std::move(value);
    return;
  }
  work.allocate(sizeof(Entry) + 64);
  entries_.push_back({std::move(key), std::move(value)});
  if (!index_.empty()) {
    index_.emplace(hash, static_cast<uint32_t>(entries_.size() - 1));
  } else if (entries_.size() == kIndexFromEntries) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      index_.emplace(hash_of(entries_[i].key, work), static_cast<uint32_t>(i));
    }
  }
}

const Value* Dict::find(const Value& key, Work& work) const {
  const size_t hash = hash_of(key, work);
  const Entry* entry = locate(key, hash, work);
  return entry == nullptr ? nullptr : &entry->value;
}

const Value* Dict::find(std::string_view key) const {
  const auto is_key = [&](const Entry& entry) {
    const Text* text = entry.key.as_text();
    return text != nullptr && text->text == key;
  };
  if (!index_.empty()) {
    const auto [first, last] = index_.equal_range(hash_of_text(key));
    for (auto at = first; at != last; ++at) {
      if (is_key(entries_[at->second])) return &entries_[at->second].value;
    }
    return nullptr;
  }
  const auto at = std::find_if(entries_.begin(), entries_.end(), is_key);
  return at == entries_.end() ? nullptr : &at->value;
}

Value make_sequence(SequenceKind kind, std::vector<Value> items, Work& work) {
  work.allocate(items.size() + 2, sizeof(Value));
  work.spend(static_cast<int64_t>(items.size()));
  auto sequence = std::make_shared<Sequence>();
  sequence->kind = kind;
  for (const Value& item : items)
    sequence->depth = std::max(sequence->depth, value_depth(item) + 1);
  if (sequence->depth > kMaxValueDepth) fail("a list is nested too deeply");
  sequence->items = std::move(items);
  return Value(Value::SequenceRef(std::move(sequence)));
}

Value make_dict(Dict dict) { return Value(std::make_shared<const Dict>(std::move(dict))); }

Value make_string(std::string text, Work& work) {
  work.allocate(text.size() + 64);
  work.spend_on_bytes(text.size());
  return Value::string(std::move(text));
}

Value make_string_like(const Text& model, std::string text, Work& work) {
  work.allocate(text.size() + 64);
  work.spend_on_bytes(text.size());
  return model.is_markup ? Value::markup(std::move(text)) : Value::string(std::move(text));
}

int value_depth(const Value& value) {
  if (const Sequence* sequence = value.as_sequence()) return sequence->depth;
  if (const Dict* dict = value.as_dict()) return dict->depth();
  return 0;
}

bool is_truthy(const Value& value) {
  if (value.is_none() || value.is_undefined()) return false;
  if (const auto number = value.as_number()) return *number != 0.0;
  if (const Text* text = value.as_text()) return !text->text.empty();
  if (const Sequence* sequence = value.as_sequence()) {
    return sequence->kind == SequenceKind::kGenerator || !sequence->items.empty();
  }
  if (const Dict* dict = value.as_dict()) return dict->size() != 0;
  if (const Range* range = value.as_range()) return range->size() != 0;
  return true;
}

std::string_view type_name(const Value& value) {
  if (value.is_none()) return "NoneType";
  if (value.is_undefined()) return "Undefined";
  if (value.as_bool() != nullptr) return "bool";
  if (value.is_plain_integer()) return "int";
  if (value.as_real() != nullptr) return "float";
  if (const Text* text = value.as_text()) return text->is_markup ? "Markup" : "str";
  if (value.is_dict()) return "dict";
  if (value.as_range() != nullptr) return "range";
  if (const Callable* callable = value.as_callable()) return callable->type_name;
  if (const Object* object = value.as_object()) return object->type_name;
  switch (value.as_sequence()->kind) {
    case SequenceKind::kList:
      return "list";
    case SequenceKind::kTuple:
      return "tuple";
    case SequenceKind::kGroup:
      return "_GroupTuple";
    case SequenceKind::kGenerator:
      return "generator";
    case SequenceKind::kKeys:
      return "dict_keys";
    case SequenceKind::kValues:
      return "dict_values";
    case SequenceKind::kItems:
      return "dict_items";
  }
  return "object";
}

std::string object_name(const Value& value) {
  if (value.is_none()) return "None";
  const bool builtin = value.as_object() == nullptr && value.as_callable() == nullptr &&
                       value.as_kind(SequenceKind::kGroup) == nullptr;
  if (const Object* object = value.as_object()) {
    return (object->is_namespace ? "jinja2.utils." : "jinja2.runtime.") + object->type_name +
           " object";
  }
  return (builtin ? "" : "jinja2.runtime.") + std::string(type_name(value)) + " object";
}

int64_t length_of(const Value& value, Work& work) {
  if (value.is_undefined()) return 0;
  if (const Text* text = value.as_text()) {
    work.spend_on_bytes(text->text.size());
    return static_cast<int64_t>(count_code_points(text->text));
  }
  const Sequence* sequence = value.as_sequence();
  if (sequence != nullptr && sequence->kind != SequenceKind::kGenerator) {
    return static_cast<int64_t>(sequence->items.size());
  }
  if (const Dict* dict = value.as_dict()) return static_cast<int64_t>(dict->size());
  if (const Range* range = value.as_range()) return range->size();
  fail(fmt::format("object of type '{}' has no len()", type_name(value)));
}

std::vector<Value> items_of(const Value& value, Work& work) {
  std::vector<Value> items;
  const auto reserve = [&](size_t count) {
    work.allocate(count, sizeof(Value));
    work.spend(static_cast<int64_t>(count));
    items.reserve(count);
  };
  if (value.is_undefined()) return items;
  if (const Sequence* sequence = value.as_sequence()) {
    reserve(sequence->items.size());
    items.assign(sequence->items.begin() + static_cast<ptrdiff_t>(sequence->consumed),
                 sequence->items.end());
    if (sequence->kind == SequenceKind::kGenerator) sequence->consumed = sequence->items.size();
  } else if (const Dict* dict = value.as_dict()) {
    reserve(dict->size());
    for (const Dict::Entry& entry : dict->entries()) items.push_back(entry.key);
  } else if (const Text* text = value.as_text()) {
    const size_t count = count_code_points(text->text);
    reserve(count);
    work.allocate(count, 96);
    for (size_t at = 0; at < text->text.size();) {
      const size_t bytes = decode_at(text->text, at).bytes;
      items.push_back(Value::string(text->text.substr(at, bytes)));
      at += bytes;
    }
  } else if (const Range* range = value.as_range()) {
    const int64_t count = range->size();
    reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i)
      items.push_back(Value::integer(range->start + i * range->step));
  } else {
    fail(fmt::format("'{}' object is not iterable", type_name(value)));
  }
  return items;
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.as_sequence() != nullptr || value.is_dict() ||
         value.is_string() || value.as_range() != nullptr;
}

}  // namespace tandem::jinja
