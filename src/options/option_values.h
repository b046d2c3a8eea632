// The kinds of variables that options set: what each accepts, how it is written, and what an error
// says. Every variable must outlive what is made for it. Threads: see option_descriptor.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "options/option_descriptor.h"

namespace tandem::values {

// Both inclusive.
struct WholeRange {
  int64_t min = 0;
  int64_t max = 0;
};

// A whole number in decimal digits. Without a range: any that the type holds.
OptionVariable whole(int32_t& variable, std::optional<WholeRange> range = {});
OptionVariable whole(int64_t& variable, std::optional<WholeRange> range = {});
OptionVariable whole(uint16_t& variable);
OptionVariable whole(uint64_t& variable);
// The same; 0 stands for "not given" and is not shown.
OptionVariable whole_if_given(int32_t& variable, std::optional<WholeRange> range = {});
OptionVariable whole_if_given(int64_t& variable, std::optional<WholeRange> range = {});

// The same for what is not a variable of its own.
OptionVariable whole_by(WholeRange range, std::function<void(int64_t)> set,
                        std::function<int64_t()> get);

// A number of min to max; absent: not given.
OptionVariable real_if_given(std::optional<double>& variable, double min, double max);

// "4096", or as vLLM writes thousands: "4k" (of 1000), "4K" (of 1024), likewise m, M, g and G.
OptionVariable tokens(int32_t& variable, int32_t max);
// The same; "auto" and "-1" stand for "not given", which is 0.
OptionVariable tokens_if_given(int32_t& variable, int32_t max);

// "64KiB", "2GiB", "123": see parse_bytes.
OptionVariable bytes(int64_t& variable);
OptionVariable bytes(uint64_t& variable);
OptionVariable bytes_if_given(int64_t& variable);  // 0: not given

// "200ms", "1.5s": see parse_duration.
OptionVariable duration(Nanos& variable);

// Any text; empty: not given.
OptionVariable text(std::string& variable);
// A file or folder. Configurations show its last name only.
OptionVariable path(std::string& variable);
OptionVariable path(std::filesystem::path& variable);
OptionVariable texts(std::vector<std::string>& variable);

// A flag without a value that makes `variable` true; the second one makes it false.
OptionVariable switch_on(bool& variable);
OptionVariable switch_off(bool& variable);

// A text that `parse` reads and `format` writes. `format` gives an empty text for "not given".
// `names`: the texts that `parse` takes, if they are few enough to list; it may take other
// spellings of them.
OptionVariable parsed_text(std::function<Status(const std::string&)> parse,
                           std::function<std::string()> format,
                           std::vector<std::string> names = {});

// One of some names. `set` gets the number of the name; `get` gives it.
OptionVariable one_of(std::vector<std::string> names, std::function<void(size_t)> set,
                      std::function<size_t()> get);
OptionVariable one_of(std::string& variable, std::vector<std::string> names);
// One of some numbers.
OptionVariable one_of(std::vector<int64_t> numbers, std::function<void(int64_t)> set,
                      std::function<int64_t()> get);

template <class Enum>
struct NamedValue {
  std::string_view name;
  Enum value;
};

// One of the names of an enumeration, of which `variable` holds one.
template <class Enum>
requires std::is_enum_v<Enum> OptionVariable named(Enum& variable,
                                                   std::vector<NamedValue<Enum>> values) {
  std::vector<std::string> names;
  for (const NamedValue<Enum>& value : values) {
    names.emplace_back(value.name);
  }
  return one_of(
      std::move(names), [&variable, values](size_t i) { variable = values[i].value; },
      [&variable, values] {
        size_t i = 0;
        while (i + 1 < values.size() && values[i].value != variable) {
          ++i;
        }
        return i;
      });
}

// The number of a value of an enumeration that counts from 0 to `last`.
template <class Enum>
requires std::is_enum_v<Enum> OptionVariable numbered(Enum& variable, Enum last) {
  return whole_by(
      {0, static_cast<int64_t>(last)},
      [&variable](int64_t number) { variable = static_cast<Enum>(number); },
      [&variable] { return static_cast<int64_t>(variable); });
}

}  // namespace tandem::values
