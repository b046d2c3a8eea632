// Python's operators on template values. All fail with Python's own words for wrong types and
// charge `work` for what they make.
#pragma once

#include "jinja/ast.h"
#include "jinja/value.h"

namespace tandem::jinja {

Value apply_unary(UnaryOperator operation, const Value& operand);
Value apply_binary(BinaryOperator operation, const Value& left, const Value& right, Work& work);
bool apply_compare(CompareOperator operation, const Value& left, const Value& right, Work& work);

struct SliceBounds {
  Value start;  // None: from the end that the step begins at
  Value stop;
  Value step;
};
Value apply_slice(const Value& object, const SliceBounds& bounds, Work& work);

// text % values, where values is a tuple, a dict or a single value.
Value format_percent(const Text& format, const Value& values, Work& work);
// An int that fits 64 bits, for use as a count or an index; fails with `what` in the message
// otherwise.
int64_t to_count(const Value& value, std::string_view what);

}  // namespace tandem::jinja
