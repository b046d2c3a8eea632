#include "jinja/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "jinja/compare.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

[[noreturn]] void fail_overflow() { fail("an integer grows past 128 bits"); }

std::string_view symbol(BinaryOperator operation) {
  constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
  return kSymbols[static_cast<size_t>(operation)];
}

[[noreturn]] void fail_types(BinaryOperator operation, const Value& left, const Value& right) {
  if (operation == BinaryOperator::kAdd && left.is_string()) {
    fail(fmt::format("can only concatenate str (not \"{}\") to str", type_name(right)));
  }
  if (operation == BinaryOperator::kAdd && left.as_kind(SequenceKind::kList) != nullptr) {
    fail(fmt::format("can only concatenate list (not \"{}\") to list", type_name(right)));
  }
  fail(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", symbol(operation),
                   type_name(left), type_name(right)));
}

// Rounds towards minus infinity, as Python does.
Int floor_divide(Int left, Int right) {
  if (right == -1) {  // the one division that can overflow
    Int negated = 0;
    if (__builtin_sub_overflow(static_cast<Int>(0), left, &negated)) fail_overflow();
    return negated;
  }
  const Int quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

Int floor_modulo(Int left, Int right) {
  if (right == -1) return 0;
  const Int remainder = left % right;
  return remainder != 0 && (remainder < 0) != (right < 0) ? remainder + right : remainder;
}

double floor_modulo(double left, double right) {
  const double remainder = std::fmod(left, right);
  if (remainder == 0) return std::copysign(0.0, right);
  return (remainder < 0) != (right < 0) ? remainder + right : remainder;
}

double floor_divide(double left, double right) {
  const double remainder = std::fmod(left, right);
  double quotient = (left - remainder) / right;
  if (remainder != 0 && (right < 0) != (remainder < 0)) quotient -= 1.0;
  if (quotient == 0) return std::copysign(0.0, left / right);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1.0 : floored;
}

Value power(Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) fail("0.0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  Int result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return Value::integer(result);
}

Value integer_binary(BinaryOperator operation, Int left, Int right) {
  Int result = 0;
  bool overflow = false;
  switch (operation) {
    case BinaryOperator::kAdd:
      overflow = __builtin_add_overflow(left, right, &result);
      break;
    case BinaryOperator::kSubtract:
      overflow = __builtin_sub_overflow(left, right, &result);
      break;
    case BinaryOperator::kMultiply:
      overflow = __builtin_mul_overflow(left, right, &result);
      break;
    case BinaryOperator::kDivide:
      if (right == 0) fail("division by zero");
      return Value::real(static_cast<double>(left) / static_cast<double>(right));
    case BinaryOperator::kFloorDivide:
      if (right == 0) fail("integer division or modulo by zero");
      result = floor_divide(left, right);
      break;
    case BinaryOperator::kModulo:
      if (right == 0) fail("integer modulo by zero");
      result = floor_modulo(left, right);
      break;
    case BinaryOperator::kPower:
      return power(left, right);
  }
  if (overflow) fail_overflow();
  return Value::integer(result);
}

Value real_binary(BinaryOperator operation, double left, double right) {
  switch (operation) {
    case BinaryOperator::kAdd:
      return Value::real(left + right);
    case BinaryOperator::kSubtract:
      return Value::real(left - right);
    case BinaryOperator::kMultiply:
      return Value::real(left * right);
    case BinaryOperator::kDivide:
      if (right == 0) fail("float division by zero");
      return Value::real(left / right);
    case BinaryOperator::kFloorDivide:
      if (right == 0) fail("float floor division by zero");
      return Value::real(floor_divide(left, right));
    case BinaryOperator::kModulo:
      if (right == 0) fail("float modulo");
      return Value::real(floor_modulo(left, right));
    case BinaryOperator::kPower:
      break;
  }
  if (left == 0 && right < 0) fail("0.0 cannot be raised to a negative power");
  if (left < 0 && std::floor(right) != right) fail("complex numbers are not supported");
  const double result = std::pow(left, right);
  if (std::isinf(result) && std::isfinite(left) && std::isfinite(right))
    fail("Numerical result out of range");
  return Value::real(result);
}

Value add_texts(const Text& left, const Text& right, Work& work) {
  if (left.is_markup || right.is_markup) {
    const std::string l = left.is_markup ? left.text : escape_html(left.text);
    const std::string r = right.is_markup ? right.text : escape_html(right.text);
    work.allocate(l.size() + r.size());
    return Value::markup(l + r);
  }
  work.allocate(left.text.size() + right.text.size() + 64);
  work.spend_on_bytes(left.text.size() + right.text.size());
  std::string text;
  text.reserve(left.text.size() + right.text.size());
  text += left.text;
  text += right.text;
  return Value::string(std::move(text));
}

bool is_list_or_tuple(const Sequence* sequence) {
  return sequence != nullptr &&
         (sequence->kind == SequenceKind::kList || sequence->kind == SequenceKind::kTuple);
}

Value repeat(const Value& value, Int times, Work& work) {
  const auto count =
      static_cast<size_t>(std::clamp<Int>(times, 0, std::numeric_limits<int64_t>::max()));
  if (const Text* text = value.as_text()) {
    if (text->text.empty()) return value;
    work.allocate(count, text->text.size());
    std::string out;
    out.reserve(count * text->text.size());
    for (size_t i = 0; i < count; ++i) out += text->text;
    return make_string_like(*text, std::move(out), work);
  }
  const Sequence& sequence = *value.as_sequence();
  std::vector<Value> items;
  if (!sequence.items.empty()) {
    work.allocate(count, sequence.items.size() * sizeof(Value));
    for (size_t i = 0; i < count; ++i)
      items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return make_sequence(sequence.kind, std::move(items), work);
}

bool is_repeatable(const Value& value) {
  return value.is_string() || is_list_or_tuple(value.as_sequence());
}

}  // namespace

Value apply_unary(UnaryOperator operation, const Value& operand) {
  if (operation == UnaryOperator::kNot) return Value::boolean(!is_truthy(operand));
  if (operand.is_undefined()) fail(operand.undefined_message());
  const bool negate = operation == UnaryOperator::kNegate;
  if (const double* real = operand.as_real()) return Value::real(negate ? -*real : *real);
  const auto integer = operand.as_integer();
  if (!integer)
    fail(
        fmt::format("bad operand type for unary {}: '{}'", negate ? '-' : '+', type_name(operand)));
  return negate ? integer_binary(BinaryOperator::kSubtract, 0, *integer) : Value::integer(*integer);
}

Value apply_binary(BinaryOperator operation, const Value& left, const Value& right, Work& work) {
  work.spend(1);
  if (operation == BinaryOperator::kModulo && left.is_string()) {
    return format_percent(*left.as_text(), right, work);
  }
  if (left.is_undefined()) fail(left.undefined_message());
  if (right.is_undefined()) fail(right.undefined_message());
  const auto left_integer = left.as_integer();
  const auto right_integer = right.as_integer();
  if (left_integer && right_integer)
    return integer_binary(operation, *left_integer, *right_integer);
  const auto left_number = left.as_number();
  const auto right_number = right.as_number();
  if (left_number && right_number) return real_binary(operation, *left_number, *right_number);
  if (operation == BinaryOperator::kAdd) {
    if (left.is_string() && right.is_string())
      return add_texts(*left.as_text(), *right.as_text(), work);
    const Sequence* a = left.as_sequence();
    const Sequence* b = right.as_sequence();
    if (is_list_or_tuple(a) && is_list_or_tuple(b) && a->kind == b->kind) {
      std::vector<Value> items = a->items;
      items.insert(items.end(), b->items.begin(), b->items.end());
      return make_sequence(a->kind, std::move(items), work);
    }
  } else if (operation == BinaryOperator::kMultiply) {
    if (is_repeatable(left) && right_integer) return repeat(left, *right_integer, work);
    if (is_repeatable(right) && left_integer) return repeat(right, *left_integer, work);
  }
  fail_types(operation, left, right);
}

bool apply_compare(CompareOperator operation, const Value& left, const Value& right, Work& work) {
  const auto ordered = [&](std::string_view name, bool swapped, bool negated) {
    const auto left_number = left.as_number();
    const auto right_number = right.as_number();
    const bool unordered =
        left_number && right_number && (std::isnan(*left_number) || std::isnan(*right_number));
    const bool is_less = swapped ? less(right, left, name, work) : less(left, right, name, work);
    return !unordered && is_less != negated;
  };
  switch (operation) {
    case CompareOperator::kEqual:
      return equals(left, right, work);
    case CompareOperator::kNotEqual:
      return !equals(left, right, work);
    case CompareOperator::kLess:
      return ordered("<", false, false);
    case CompareOperator::kLessEqual:
      return ordered("<=", true, true);
    case CompareOperator::kGreater:
      return ordered(">", true, false);
    case CompareOperator::kGreaterEqual:
      return ordered(">=", false, true);
    case CompareOperator::kIn:
      return contains(right, left, work);
    case CompareOperator::kNotIn:
      break;
  }
  return !contains(right, left, work);
}

int64_t to_count(const Value& value, std::string_view what) {
  if (value.is_undefined()) fail(value.undefined_message());
  const auto integer = value.as_integer();
  if (!integer) fail(fmt::format("{} must be an integer, not '{}'", what, type_name(value)));
  if (*integer > std::numeric_limits<int64_t>::max() ||
      *integer < std::numeric_limits<int64_t>::min()) {
    fail(fmt::format("{} is too large", what));
  }
  return static_cast<int64_t>(*integer);
}

namespace {

struct SliceIndices {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  int64_t count = 0;
};

// Python's slice.indices(length).
SliceIndices resolve_slice(const SliceBounds& bounds, int64_t length) {
  const auto part = [](const Value& value, int64_t fallback) -> Int {
    if (value.is_none()) return fallback;
    if (value.is_undefined()) fail(value.undefined_message());
    const auto integer = value.as_integer();
    if (!integer) fail("slice indices must be integers or None or have an __index__ method");
    return *integer;
  };
  const Int wide_step = part(bounds.step, 1);
  if (wide_step == 0) fail("slice step cannot be zero");
  const auto step = static_cast<int64_t>(std::clamp<Int>(wide_step, -length - 1, length + 1));
  const bool forward = step > 0;
  const auto clamp = [&](Int index) {
    if (index < 0) index += length;
    return static_cast<int64_t>(forward ? std::clamp<Int>(index, 0, length)
                                        : std::clamp<Int>(index, -1, length - 1));
  };
  const int64_t start =
      bounds.start.is_none() ? (forward ? 0 : length - 1) : clamp(part(bounds.start, 0));
  const int64_t stop =
      bounds.stop.is_none() ? (forward ? length : -1) : clamp(part(bounds.stop, 0));
  const int64_t distance = forward ? stop - start : start - stop;
  const int64_t stride = forward ? step : -step;
  return {start, stop, step, distance <= 0 ? 0 : (distance + stride - 1) / stride};
}

std::string slice_text(const std::string& text, const SliceBounds& bounds, Work& work) {
  work.spend_on_bytes(text.size());
  const SliceIndices slice = resolve_slice(bounds, static_cast<int64_t>(count_code_points(text)));
  if (slice.count == 0) return {};
  if (slice.step == 1) {
    const size_t begin = byte_offset(text, static_cast<size_t>(slice.start));
    const std::string_view rest = std::string_view(text).substr(begin);
    return std::string(rest.substr(0, byte_offset(rest, static_cast<size_t>(slice.count))));
  }
  std::vector<size_t> offsets;
  work.allocate(text.size(), sizeof(size_t));
  for (size_t at = 0; at < text.size(); at += decode_at(text, at).bytes) offsets.push_back(at);
  std::string out;
  for (int64_t i = 0; i < slice.count; ++i) {
    const size_t at = offsets[static_cast<size_t>(slice.start + i * slice.step)];
    out.append(text, at, decode_at(text, at).bytes);
  }
  return out;
}

constexpr int64_t kLargestStep = int64_t{1} << 50;

}  // namespace

Value apply_slice(const Value& object, const SliceBounds& bounds, Work& work) {
  if (object.is_undefined()) fail(object.undefined_message());
  if (const Text* text = object.as_text()) {
    return make_string_like(*text, slice_text(text->text, bounds, work), work);
  }
  const Sequence* sequence = object.as_sequence();
  const bool is_tuple = sequence != nullptr && (sequence->kind == SequenceKind::kTuple ||
                                                sequence->kind == SequenceKind::kGroup);
  if (is_tuple || object.as_kind(SequenceKind::kList) != nullptr) {
    const SliceIndices slice = resolve_slice(bounds, static_cast<int64_t>(sequence->items.size()));
    std::vector<Value> items;
    work.allocate(static_cast<size_t>(slice.count), sizeof(Value));
    for (int64_t i = 0; i < slice.count; ++i) {
      items.push_back(sequence->items[static_cast<size_t>(slice.start + i * slice.step)]);
    }
    return make_sequence(is_tuple ? SequenceKind::kTuple : SequenceKind::kList, std::move(items),
                         work);
  }
  if (const Range* range = object.as_range()) {
    const SliceIndices slice = resolve_slice(bounds, range->size());
    const auto at = [&](int64_t index) { return range->start + index * range->step; };
    Range part{at(slice.start), at(slice.stop), 0};
    // Of a slice of a slice the step may grow without bound, though it steps nowhere any more.
    if (__builtin_mul_overflow(range->step, slice.step, &part.step) ||
        std::abs(part.step) > kLargestStep) {
      fail("the step of a range is too large");
    }
    return Value(std::make_shared<const Range>(part));
  }
  if (object.is_dict()) fail("unhashable type: 'slice'");
  fail(fmt::format("'{}' object is not subscriptable", type_name(object)));
}

}  // namespace tandem::jinja
