// Filters that give numbers: int, float, round, abs, sum, min, max.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "jinja/builtins.h"
#include "jinja/compare.h"
#include "jinja/literal.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

// int(number), which cuts towards zero; nullopt when there is no such integer.
std::optional<Int> truncated(double number) {
  if (!std::isfinite(number)) return std::nullopt;
  if (std::fabs(number) >= 1e38) fail("an integer grows past 128 bits");
  return static_cast<Int>(number);
}

Value to_int(Interpreter&, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "int", {"default", "base"});
  if (input.is_undefined()) fail(input.undefined_message());
  std::optional<Int> result;
  if (const Text* text = input.as_text()) {
    const int64_t base = to_count(bound.get(1, Value::integer(10)), "base");
    if (base == 0 || (base >= 2 && base <= 36))
      result = parse_integer(text->text, static_cast<int>(base));
    const std::optional<double> real = result ? std::nullopt : parse_real(text->text);
    if (real) result = truncated(*real);
  } else if (const auto number = input.as_number()) {
    const auto integer = input.as_integer();
    if (std::isinf(*number)) fail("cannot convert float infinity to integer");
    result = integer ? integer : truncated(*number);
  }
  return result ? Value::integer(*result) : bound.get(0, Value::integer(0));
}

Value to_real(Interpreter&, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "float", {"default"});
  if (input.is_undefined()) fail(input.undefined_message());
  const Text* text = input.as_text();
  const std::optional<double> result = text != nullptr ? parse_real(text->text) : input.as_number();
  return result ? Value::real(*result) : bound.get(0, Value::real(0.0));
}

// round(number, digits): half to even of the exact binary value, which printf's rounding is as
// well.
double rounded(double number, int64_t digits) {
  if (!std::isfinite(number) || digits > 323) return number;
  if (digits >= 0) {
    return std::strtod(fmt::format("{:.{}f}", number, static_cast<int>(digits)).c_str(), nullptr);
  }
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::isfinite(scale) ? std::nearbyint(number / scale) * scale : 0.0;
}

Int rounded_integer(Int number, int64_t digits) {
  Int scale = 1;
  for (int64_t i = 0; i < -digits; ++i) {
    if (__builtin_mul_overflow(scale, static_cast<Int>(10), &scale)) return 0;
  }
  const Int remainder = number % scale < 0 ? number % scale + scale : number % scale;
  const Int left = scale - remainder;  // to the next multiple; below, that is remainder away
  const Int quotient = number / scale - (number % scale < 0 ? 1 : 0);
  const bool up = remainder > left || (remainder == left && quotient % 2 != 0);
  Int result = 0;
  if (__builtin_mul_overflow(quotient + (up ? 1 : 0), scale, &result)) {
    fail("an integer grows past 128 bits");
  }
  return result;
}

Value round(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "round", {"precision", "method"});
  const int64_t digits =
      std::clamp<int64_t>(to_count(bound.get(0, Value::integer(0)), "precision"), -400, 400);
  const std::string method = to_text(bound.get(1, Value::string("common")), interpreter.work());
  if (method != "common" && method != "ceil" && method != "floor")
    fail("method must be common, ceil or floor");
  const auto number = input.as_number();
  if (!number) {
    if (input.is_undefined()) fail(input.undefined_message());
    fail(fmt::format("type {} doesn't define __round__ method", type_name(input)));
  }
  if (method == "common") {
    const auto integer = input.as_integer();
    if (!integer) return Value::real(rounded(*number, digits));
    return Value::integer(digits >= 0 ? *integer : rounded_integer(*integer, digits));
  }
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double whole = method == "ceil" ? std::ceil(*number * scale) : std::floor(*number * scale);
  return Value::real((whole + 0.0) / scale);  // Python's are integers, so there is no -0
}

Value absolute(Interpreter&, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "abs", {});
  if (input.is_undefined()) fail(input.undefined_message());
  if (const double* real = input.as_real()) return Value::real(std::fabs(*real));
  const auto integer = input.as_integer();
  if (!integer) fail(fmt::format("bad operand type for abs(): '{}'", type_name(input)));
  return *integer < 0 ? apply_unary(UnaryOperator::kNegate, Value::integer(*integer))
                      : Value::integer(*integer);
}

Value sum(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "sum", {"attribute", "start"});
  Work& work = interpreter.work();
  const Value attribute = bound.get(0, Value());
  Value total = bound.get(1, Value::integer(0));
  if (total.is_string()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : items_of(input, work)) {
    const Value term =
        attribute.is_none() ? item : attribute_of(interpreter, item, attribute, nullptr);
    total = apply_binary(BinaryOperator::kAdd, total, term, work);
  }
  return total;
}

enum class Extreme { kSmallest, kLargest };

template <Extreme kExtreme>
Value extreme(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, kExtreme == Extreme::kSmallest ? "min" : "max",
                    {"case_sensitive", "attribute"});
  Work& work = interpreter.work();
  const Value attribute = bound.get(1, Value());
  const auto key_of = [&](const Value& item) {
    Value key = attribute.is_none() ? item : attribute_of(interpreter, item, attribute, nullptr);
    const bool lower = !bound.flag(0, false) && key.is_string();
    return lower ? make_string(to_lower(key.as_text()->text), work) : key;
  };
  const std::vector<Value> all = items_of(input, work);
  if (all.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  Value best = all.front();
  Value best_key = key_of(best);
  for (size_t i = 1; i < all.size(); ++i) {
    Value key = key_of(all[i]);
    const bool better = kExtreme == Extreme::kSmallest ? less(key, best_key, "<", work)
                                                       : less(best_key, key, ">", work);
    if (!better) continue;
    best = all[i];
    best_key = std::move(key);
  }
  return best;
}

constexpr NamedFunction<FilterFunction> kNumberFilters[] = {
    {"int", to_int},
    {"float", to_real},
    {"round", round},
    {"abs", absolute},
    {"sum", sum},
    {"min", extreme<Extreme::kSmallest>},
    {"max", extreme<Extreme::kLargest>},
};

}  // namespace

FilterFunction find_number_filter(std::string_view name) {
  return find_named(kNumberFilters, name);
}

}  // namespace tandem::jinja
