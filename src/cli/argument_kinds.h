// Which arguments of a command line are options, values of options or arguments by place, as CLI11
// reads them. Only the files of this folder include this header. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tandem::cli {

enum class ArgumentKind : uint8_t {
  kCommand,     // names a subcommand
  kOption,      // "--port", "--port=8", "-o"
  kValue,       // a value of the option before it
  kPlace,       // neither an option nor a value: the model of `serve MODEL`
  kTerminator,  // "--": only arguments by place follow
};

struct Argument {
  ArgumentKind kind = ArgumentKind::kPlace;
  // Set for kOption and kValue. Null: the command has no such option, or the kind is another.
  const CLI::Option* option = nullptr;
};

// One element for each argument. `arguments` begin with the subcommands of `app`, if it has any.
std::vector<Argument> classify(const std::vector<std::string>& arguments, const CLI::App& app);

// The options of CLI11 that take no value: "--check".
bool is_switch(const CLI::Option& option);
// "true", "off", "Yes", "1" and the like.
bool is_boolean(std::string_view text);

// Corrects two readings of CLI11. "--host=" becomes "--host" and "": CLI11 would take the next
// argument as the value. A switch with a value that is not a boolean is an error: CLI11 throws.
Result<std::vector<std::string>> correct_values(const std::vector<std::string>& arguments,
                                                const CLI::App& app);

}  // namespace tandem::cli
