// What an option of the program is: its name, unit, default, range, help and group, and the
// variable that holds its value. Each struct of options has one table of descriptors, beside the
// struct. The command line, the configuration file, the environment, the help, /v1/tandem/config,
// the head of a record and replay are made from these tables (cli/option_flags.h,
// options/option_json.h).
//
// A table borrows the struct it was made for. Its defaults are what the struct held at that time.
// Threads: plain data; a table is used by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace tandem {

// A value as configurations show it. std::monostate: not given, and found out later.
using OptionValue = std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string,
                                 std::vector<std::string>>;

enum class OptionKind : uint8_t {
  kText,    // also durations, with their unit
  kNumber,  // whole or not
  kBytes,   // as text with a unit; a whole number in configurations
  kSwitch,  // true or false; a flag without a value
  kList,    // of texts
};

// What the values of an option may be: numbers from `min` to `max`, both inclusive, or one of
// `names`. std::monostate and no names: any value of the option's kind.
struct OptionRange {
  OptionValue min = {};
  OptionValue max = {};
  std::vector<std::string> names = {};
};

// A variable that an option sets, and what it takes. options/option_values.h makes them.
struct OptionVariable {
  OptionKind kind = OptionKind::kText;
  OptionRange range = {};
  // Takes the text of a flag, or a value as `get` gives it, within `range`. An error is the reason
  // alone, without the option's name, and changes nothing.
  std::function<Status(const OptionValue& value, const OptionRange& range)> assign;
  std::function<OptionValue()> get;

  [[nodiscard]] Status set(const OptionValue& value) const { return assign(value, range); }
};

// Whether the option belongs to a recorded run. Records keep what became of it: the number of
// blocks that were planned, not that none was given.
enum class Recorded : uint8_t {
  kNo,      // a replay takes it from its own command line, or needs none
  kLater,   // records of earlier builds lack it
  kAlways,  // a record without it is broken
};

struct OptionDescriptor {
  std::string name;        // of the flag, without dashes: "max-num-seqs"
  std::string unit = {};   // of whole numbers, for errors and the help: "sequences"
  std::string group = {};  // of the help
  std::string help = {};
  OptionVariable value = {};
  std::string key = {};  // in configurations and records; empty: the name with _ for -
  std::string other_names =
      {};               // of the flag, separated by commas; a word without dashes: by place
  bool secret = false;  // configurations say only whether it is given
  Recorded recorded = Recorded::kNo;
};

using OptionTable = std::vector<OptionDescriptor>;

// Its name in configurations and records.
std::string config_key(const OptionDescriptor& option);

// The value as it would be written for a flag: "32MiB", "on", "a, b". Empty: it is not given.
std::string option_text(const OptionDescriptor& option);

// The range as the help shows it: "1 to 65536 sequences", "0 or more steps". Empty: it has none, or
// names, which the help shows as the value.
std::string range_text(const OptionDescriptor& option);

// Sets the variable. An error names the flag and says what is wrong.
Status set_option(const OptionDescriptor& option, const OptionValue& value);

// The options of these groups, in the order of the table.
OptionTable options_of_group(const OptionTable& table, std::string_view group);

}  // namespace tandem
