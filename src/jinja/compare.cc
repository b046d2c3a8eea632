#include "jinja/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tandem::jinja {
namespace {

bool same_sequence_type(const Sequence& left, const Sequence& right) {
  const auto is_tuple = [](const Sequence& s) {
    return s.kind == SequenceKind::kTuple || s.kind == SequenceKind::kGroup;
  };
  return left.kind == right.kind || (is_tuple(left) && is_tuple(right));
}

bool equal_numbers(const Value& left, const Value& right) {
  const auto left_integer = left.as_integer();
  const auto right_integer = right.as_integer();
  if (left_integer && right_integer) return *left_integer == *right_integer;
  return *left.as_number() == *right.as_number();
}

bool equal_sequences(const Sequence& left, const Sequence& right, Work& work) {
  if (&left == &right) return true;
  if (left.kind == SequenceKind::kGenerator || left.kind == SequenceKind::kValues) return false;
  if (!same_sequence_type(left, right) || left.items.size() != right.items.size()) return false;
  for (size_t i = 0; i < left.items.size(); ++i) {
    if (!equals(left.items[i], right.items[i], work)) return false;
  }
  return true;
}

bool equal_dicts(const Dict& left, const Dict& right, Work& work) {
  if (&left == &right) return true;
  if (left.size() != right.size()) return false;
  for (const Dict::Entry& entry : left.entries()) {
    const Value* other = right.find(entry.key, work);
    if (other == nullptr || !equals(entry.value, *other, work)) return false;
  }
  return true;
}

bool equal_ranges(const Range& left, const Range& right) {
  if (left.size() != right.size()) return false;
  if (left.size() == 0) return true;
  return left.start == right.start && (left.size() == 1 || left.step == right.step);
}

bool range_contains(const Range& range, const Value& item) {
  const auto integer = item.as_integer();
  if (!integer || range.size() == 0) return false;
  const Int last = range.start + static_cast<Int>(range.size() - 1) * range.step;
  const Int low = std::min<Int>(range.start, last);
  const Int high = std::max<Int>(range.start, last);
  return *integer >= low && *integer <= high && (*integer - range.start) % range.step == 0;
}

}  // namespace

bool equals(const Value& left, const Value& right, Work& work) {
  work.spend(1);
  if (left.as_number() && right.as_number()) return equal_numbers(left, right);
  if (const Text* text = left.as_text()) {
    const Text* other = right.as_text();
    if (other == nullptr || text->text.size() != other->text.size()) return false;
    work.spend_on_bytes(text->text.size());
    return text->text == other->text;
  }
  if (left.is_none()) return right.is_none();
  if (left.is_undefined()) return right.is_undefined();
  if (left.as_sequence() != nullptr && right.as_sequence() != nullptr) {
    return equal_sequences(*left.as_sequence(), *right.as_sequence(), work);
  }
  if (left.is_dict() && right.is_dict())
    return equal_dicts(*left.as_dict(), *right.as_dict(), work);
  if (left.as_range() != nullptr && right.as_range() != nullptr) {
    return equal_ranges(*left.as_range(), *right.as_range());
  }
  if (left.as_object() != nullptr) return left.as_object() == right.as_object();
  if (left.as_callable() != nullptr) return left.as_callable() == right.as_callable();
  return false;
}

bool less(const Value& left, const Value& right, std::string_view operation, Work& work) {
  work.spend(1);
  if (left.is_undefined()) fail(left.undefined_message());
  if (right.is_undefined()) fail(right.undefined_message());
  const auto left_number = left.as_number();
  const auto right_number = right.as_number();
  if (left_number && right_number) {
    const auto left_integer = left.as_integer();
    const auto right_integer = right.as_integer();
    if (left_integer && right_integer) return *left_integer < *right_integer;
    return *left_number < *right_number;
  }
  if (left.is_string() && right.is_string()) {
    work.spend_on_bytes(std::min(left.as_text()->text.size(), right.as_text()->text.size()));
    return left.as_text()->text < right.as_text()->text;  // UTF-8 sorts like its code points
  }
  const Sequence* a = left.as_sequence();
  const Sequence* b = right.as_sequence();
  const auto ordered = [](const Sequence* s) {
    return s != nullptr && (s->kind == SequenceKind::kList || s->kind == SequenceKind::kTuple ||
                            s->kind == SequenceKind::kGroup);
  };
  if (ordered(a) && ordered(b) && same_sequence_type(*a, *b)) {
    const size_t common = std::min(a->items.size(), b->items.size());
    for (size_t i = 0; i < common; ++i) {
      if (!equals(a->items[i], b->items[i], work))
        return less(a->items[i], b->items[i], operation, work);
    }
    return a->items.size() < b->items.size();
  }
  const bool swapped = operation == "<=" || operation == ">";
  fail(fmt::format("'{}' not supported between instances of '{}' and '{}'", operation,
                   type_name(swapped ? right : left), type_name(swapped ? left : right)));
}

bool contains(const Value& container, const Value& item, Work& work) {
  if (container.is_undefined()) return false;
  if (const Text* text = container.as_text()) {
    if (item.is_undefined()) fail(item.undefined_message());
    const Text* part = item.as_text();
    if (part == nullptr) {
      fail(fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
    }
    work.spend_on_bytes(text->text.size());
    return text->text.find(part->text) != std::string::npos;
  }
  if (const Dict* dict = container.as_dict()) return dict->find(item, work) != nullptr;
  if (const Range* range = container.as_range()) return range_contains(*range, item);
  if (const Sequence* sequence = container.as_sequence()) {
    for (size_t i = sequence->consumed; i < sequence->items.size(); ++i) {
      if (sequence->kind == SequenceKind::kGenerator) sequence->consumed = i + 1;
      if (equals(sequence->items[i], item, work)) return true;
    }
    return false;
  }
  fail(fmt::format("argument of type '{}' is not iterable", type_name(container)));
}

size_t hash_of_text(std::string_view text) { return std::hash<std::string_view>()(text); }

size_t hash_of(const Value& value, Work& work) {
  if (const Text* text = value.as_text()) {
    work.spend_on_bytes(text->text.size());
    return hash_of_text(text->text);
  }
  if (const auto integer = value.as_integer()) {
    return std::hash<double>()(static_cast<double>(*integer));  // the same for 1, 1.0 and True
  }
  if (const auto number = value.as_number()) return std::hash<double>()(*number);
  if (value.is_none()) return 1;
  if (value.is_undefined()) return 2;
  const Sequence* sequence = value.as_sequence();
  if (sequence != nullptr &&
      (sequence->kind == SequenceKind::kTuple || sequence->kind == SequenceKind::kGroup)) {
    work.spend(static_cast<int64_t>(sequence->items.size()) + 1);
    size_t hash = 3;
    for (const Value& item : sequence->items) hash = hash * 1000003 + hash_of(item, work);
    return hash;
  }
  if (const Range* range = value.as_range()) return static_cast<size_t>(range->size()) + 5;
  if (value.as_object() != nullptr) return std::hash<const void*>()(value.as_object());
  if (value.as_callable() != nullptr) return std::hash<const void*>()(value.as_callable());
  fail(fmt::format("unhashable type: '{}'", type_name(value)));
}

}  // namespace tandem::jinja
