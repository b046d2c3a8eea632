#include "options/option_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/units.h"

namespace tandem::values {
namespace {

std::string shown(const OptionValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text != nullptr) {
    return fmt::format("'{}'", text->substr(0, 80));
  }
  if (const auto* number = std::get_if<int64_t>(&value)) {
    return fmt::format("{}", *number);
  }
  if (const auto* number = std::get_if<uint64_t>(&value)) {
    return fmt::format("{}", *number);
  }
  return "the value";
}

// What a flag gives as text and a record as a number. Absent: it is neither, or does not fit.
template <class Number>
std::optional<Number> number_of(const OptionValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    Number number{};
    const char* begin = text->data() + (text->starts_with('+') ? 1 : 0);
    const char* end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(begin, end, number);
    return error == std::errc{} && stop == end && begin != end ? std::optional(number)
                                                               : std::nullopt;
  }
  if constexpr (std::is_floating_point_v<Number>) {
    if (const auto* real = std::get_if<double>(&value)) {
      return *real;
    }
  }
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    if constexpr (std::is_integral_v<Number>) {
      return std::in_range<Number>(*whole) ? std::optional(static_cast<Number>(*whole))
                                           : std::nullopt;
    }
    return static_cast<Number>(*whole);
  }
  if (const auto* whole = std::get_if<uint64_t>(&value)) {
    if constexpr (std::is_integral_v<Number>) {
      return std::in_range<Number>(*whole) ? std::optional(static_cast<Number>(*whole))
                                           : std::nullopt;
    }
    return static_cast<Number>(*whole);
  }
  return std::nullopt;
}

template <class Number>
Number bound_of(const OptionValue& bound, Number if_none) {
  return number_of<Number>(bound).value_or(if_none);
}

template <class Number>
Result<Number> whole_within(const OptionValue& value, const OptionRange& range) {
  const auto min = bound_of(range.min, std::numeric_limits<Number>::min());
  const auto max = bound_of(range.max, std::numeric_limits<Number>::max());
  const std::optional<Number> number = number_of<Number>(value);
  if (!number || *number < min || *number > max) {
    return invalid_argument(
        fmt::format("{} is not a whole number of {} to {}", shown(value), min, max));
  }
  return *number;
}

// A bound that is that of a large type is none.
template <class Number>
OptionRange range_of(const std::optional<WholeRange>& given) {
  if (sizeof(Number) < sizeof(int32_t)) {
    return {.min = static_cast<int64_t>(std::numeric_limits<Number>::min()),
            .max = static_cast<int64_t>(std::numeric_limits<Number>::max())};
  }
  OptionRange range;
  if (given && std::cmp_greater(given->min, std::numeric_limits<Number>::min())) {
    range.min = given->min;
  }
  if (given && std::cmp_less(given->max, std::numeric_limits<Number>::max())) {
    range.max = given->max;
  }
  return range;
}

template <class Number>
OptionVariable ranged(Number& variable, std::optional<WholeRange> given, bool zero_is_shown) {
  return {.kind = OptionKind::kNumber,
          .range = range_of<Number>(given),
          .assign = [&variable](const OptionValue& value, const OptionRange& range) -> Status {
            ASSIGN_OR_RETURN(variable, whole_within<Number>(value, range));
            return {};
          },
          .get = [&variable, zero_is_shown]() -> OptionValue {
            if (variable == 0 && !zero_is_shown) {
              return std::monostate{};
            }
            if constexpr (std::is_same_v<Number, uint64_t>) {
              return variable;
            }
            return static_cast<int64_t>(variable);
          }};
}

Result<int32_t> parse_tokens(const std::string& text, const OptionRange& range) {
  const auto min = bound_of<int32_t>(range.min, 1);
  const auto max = bound_of(range.max, std::numeric_limits<int32_t>::max());
  double number = 0;
  size_t used = 0;
  try {
    number = std::stod(text, &used);
  } catch (const std::exception&) {
    used = std::string::npos;
  }
  const std::string unit = used <= text.size() ? text.substr(used) : "?";
  if (!unit.empty()) {
    const size_t power = std::string_view("kmg").find(unit);
    const size_t binary = std::string_view("KMG").find(unit);
    if (unit.size() != 1 || (power == std::string::npos && binary == std::string::npos)) {
      return invalid_argument(
          fmt::format("'{}' is not a number of tokens; use for example 4096 or 4K", text));
    }
    number *= power != std::string::npos ? std::pow(1000, power + 1) : std::pow(1024, binary + 1);
  }
  if (!(number >= min && number <= max) || number != std::floor(number)) {
    return invalid_argument(fmt::format("{} is not a whole number of {} to {}", text, min, max));
  }
  return static_cast<int32_t>(number);
}

// Reads texts by `parse`; numbers, as records have them, as whole ones.
OptionVariable token_count(int32_t& variable, int32_t max, bool may_be_auto) {
  OptionVariable number = ranged(variable, WholeRange{1, max}, !may_be_auto);
  number.kind = OptionKind::kText;
  number.assign = [&variable, may_be_auto, assign_number = std::move(number.assign)](
                      const OptionValue& value, const OptionRange& range) -> Status {
    const auto* text = std::get_if<std::string>(&value);
    if (text == nullptr) {
      return assign_number(value, range);
    }
    if (may_be_auto && (*text == "auto" || *text == "-1")) {
      variable = 0;
      return {};
    }
    ASSIGN_OR_RETURN(variable, parse_tokens(*text, range));
    return {};
  };
  return number;
}

template <class Number>
OptionVariable byte_count(Number& variable, bool zero_is_shown) {
  constexpr WholeRange kSizes{0, int64_t{1} << 50};  // sums and products of a few fit
  OptionVariable number = ranged(variable, kSizes, zero_is_shown);
  number.kind = OptionKind::kBytes;
  number.assign = [&variable, assign_number = std::move(number.assign)](
                      const OptionValue& value, const OptionRange& range) -> Status {
    const auto* text = std::get_if<std::string>(&value);
    if (text == nullptr) {
      return assign_number(value, range);
    }
    ASSIGN_OR_RETURN(const int64_t parsed, parse_bytes(*text));
    const auto max = bound_of(range.max, std::numeric_limits<int64_t>::max());
    if (parsed > max) {
      return invalid_argument(fmt::format("{} is more than {}", shown(value), exact_bytes(max)));
    }
    variable = static_cast<Number>(parsed);
    return {};
  };
  if constexpr (std::is_same_v<Number, uint64_t>) {  // shown as other sizes are
    number.get = [&variable]() -> OptionValue { return static_cast<int64_t>(variable); };
  }
  return number;
}

Status not_a_text() { return invalid_argument("the value is not a text"); }

template <class Text>
OptionVariable file_name(Text& variable) {
  return {.kind = OptionKind::kText,
          .assign = [&variable](const OptionValue& value, const OptionRange&) -> Status {
            const auto* text = std::get_if<std::string>(&value);
            if (text == nullptr) {
              return not_a_text();
            }
            variable = *text;
            return {};
          },
          .get = [&variable]() -> OptionValue {
            const std::filesystem::path path(variable);
            if (path.empty()) {
              return std::monostate{};
            }
            return (path.has_filename() ? path : path.parent_path()).filename().string();
          }};
}

OptionVariable switched(bool& variable, bool value_when_given) {
  return {.kind = OptionKind::kSwitch,
          .assign = [&variable, value_when_given](const OptionValue& value,
                                                  const OptionRange&) -> Status {
            const auto* given = std::get_if<bool>(&value);
            if (given == nullptr) {
              return invalid_argument("the value is not true or false");
            }
            variable = *given == value_when_given;
            return {};
          },
          .get = [&variable, value_when_given]() -> OptionValue {
            return variable == value_when_given;
          }};
}

}  // namespace

OptionVariable whole(int32_t& variable, std::optional<WholeRange> range) {
  return ranged(variable, range, true);
}
OptionVariable whole(int64_t& variable, std::optional<WholeRange> range) {
  return ranged(variable, range, true);
}
OptionVariable whole(uint16_t& variable) { return ranged(variable, {}, true); }
OptionVariable whole(uint64_t& variable) { return ranged(variable, {}, true); }

OptionVariable whole_if_given(int32_t& variable, std::optional<WholeRange> range) {
  return ranged(variable, range, false);
}
OptionVariable whole_if_given(int64_t& variable, std::optional<WholeRange> range) {
  return ranged(variable, range, false);
}

OptionVariable whole_by(WholeRange given, std::function<void(int64_t)> set,
                        std::function<int64_t()> get) {
  return {.kind = OptionKind::kNumber,
          .range = range_of<int64_t>(given),
          .assign = [set = std::move(set)](const OptionValue& value,
                                           const OptionRange& range) -> Status {
            ASSIGN_OR_RETURN(const int64_t number, whole_within<int64_t>(value, range));
            set(number);
            return {};
          },
          .get = [get = std::move(get)]() -> OptionValue { return get(); }};
}

OptionVariable real_if_given(std::optional<double>& variable, double min, double max) {
  return {.kind = OptionKind::kNumber,
          .range = {.min = min, .max = max},
          .assign = [&variable](const OptionValue& value, const OptionRange& range) -> Status {
            const double lower = bound_of(range.min, std::numeric_limits<double>::lowest());
            const double upper = bound_of(range.max, std::numeric_limits<double>::max());
            const std::optional<double> number = number_of<double>(value);
            if (!number || !(*number >= lower && *number <= upper)) {
              return invalid_argument(
                  fmt::format("{} is not a number of {} to {}", shown(value), lower, upper));
            }
            variable = number;
            return {};
          },
          .get = [&variable]() -> OptionValue {
            return variable ? OptionValue(*variable) : OptionValue();
          }};
}

OptionVariable tokens(int32_t& variable, int32_t max) { return token_count(variable, max, false); }
OptionVariable tokens_if_given(int32_t& variable, int32_t max) {
  return token_count(variable, max, true);
}

OptionVariable bytes(int64_t& variable) { return byte_count(variable, true); }
OptionVariable bytes(uint64_t& variable) { return byte_count(variable, true); }
OptionVariable bytes_if_given(int64_t& variable) { return byte_count(variable, false); }

OptionVariable duration(Nanos& variable) {
  return parsed_text(
      [&variable](const std::string& text) -> Status {
        ASSIGN_OR_RETURN(variable, parse_duration(text));
        return {};
      },
      [&variable] { return exact_duration(variable); });
}

OptionVariable text(std::string& variable) {
  return parsed_text(
      [&variable](const std::string& text) -> Status {
        variable = text;
        return {};
      },
      [&variable] { return variable; });
}

OptionVariable path(std::string& variable) { return file_name(variable); }
OptionVariable path(std::filesystem::path& variable) { return file_name(variable); }

OptionVariable texts(std::vector<std::string>& variable) {
  return {.kind = OptionKind::kList,
          .assign = [&variable](const OptionValue& value, const OptionRange&) -> Status {
            const auto* list = std::get_if<std::vector<std::string>>(&value);
            if (list == nullptr) {
              return invalid_argument("the value is not a list of texts");
            }
            variable = *list;
            return {};
          },
          .get = [&variable]() -> OptionValue { return variable; }};
}

OptionVariable switch_on(bool& variable) { return switched(variable, true); }
OptionVariable switch_off(bool& variable) { return switched(variable, false); }

OptionVariable parsed_text(std::function<Status(const std::string&)> parse,
                           std::function<std::string()> format, std::vector<std::string> names) {
  return {
      .kind = OptionKind::kText,
      .range = {.names = std::move(names)},
      .assign = [parse = std::move(parse)](const OptionValue& value, const OptionRange&) -> Status {
        const auto* text = std::get_if<std::string>(&value);
        return text == nullptr ? not_a_text() : parse(*text);
      },
      .get = [format = std::move(format)]() -> OptionValue {
        std::string text = format();
        return text.empty() ? OptionValue() : OptionValue(std::move(text));
      }};
}

OptionVariable one_of(std::vector<std::string> names, std::function<void(size_t)> set,
                      std::function<size_t()> get) {
  return {.kind = OptionKind::kText,
          .range = {.names = names},
          .assign = [set = std::move(set)](const OptionValue& value,
                                           const OptionRange& range) -> Status {
            const std::vector<std::string>& known = range.names;
            const auto* text = std::get_if<std::string>(&value);
            const auto found = text == nullptr ? known.end() : std::ranges::find(known, *text);
            if (found == known.end()) {
              return invalid_argument(fmt::format("{} is not possible; choose {}", shown(value),
                                                  fmt::join(known, " or ")));
            }
            set(static_cast<size_t>(found - known.begin()));
            return {};
          },
          .get = [names, get = std::move(get)]() -> OptionValue { return names[get()]; }};
}

OptionVariable one_of(std::string& variable, std::vector<std::string> names) {
  return one_of(
      names, [&variable, names](size_t i) { variable = names[i]; },
      [&variable, names] {
        const auto found = std::ranges::find(names, variable);
        return found == names.end() ? size_t{0} : static_cast<size_t>(found - names.begin());
      });
}

OptionVariable one_of(std::vector<int64_t> numbers, std::function<void(int64_t)> set,
                      std::function<int64_t()> get) {
  std::vector<std::string> names;
  for (const int64_t number : numbers) {
    names.push_back(fmt::format("{}", number));
  }
  return {.kind = OptionKind::kNumber,
          .range = {.names = names},
          .assign = [numbers, set = std::move(set)](const OptionValue& value,
                                                    const OptionRange& range) -> Status {
            const std::optional<int64_t> number = number_of<int64_t>(value);
            if (!number || std::ranges::find(numbers, *number) == numbers.end()) {
              return invalid_argument(fmt::format("{} is not possible; choose {}", shown(value),
                                                  fmt::join(range.names, " or ")));
            }
            set(*number);
            return {};
          },
          .get = [get = std::move(get)]() -> OptionValue { return get(); }};
}

}  // namespace tandem::values
