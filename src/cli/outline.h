// What a command line takes, as plain data: commands, options, values and help. Completion scripts
// (completion.h) and the manual page (manual.h) are written from it, so they know every option that
// the program knows. Options that the help hides are left out. Threads: plain data.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace tandem::cli {

enum class ValueKind : uint8_t {
  kNone,    // a flag without a value
  kNumber,  // "N" in the help
  kText,    // "VALUE": a file, a folder or any other text
  kChoice,  // one of OptionOutline::choices
};

struct OptionOutline {
  std::vector<std::string> flags;  // with dashes, in the order of the help; empty: by place only
  std::string place;               // the name of a value that is given by place; empty: by flag
  ValueKind value = ValueKind::kNone;
  std::vector<std::string> choices;  // of kChoice
  bool takes_many = false;           // may be given several times
  std::string help;
  std::string default_text;  // empty: none is shown
  std::string group;         // of the help
};

struct CommandOutline {
  std::string name;  // "kernels"
  std::string path;  // "tandem bench kernels"
  std::string help;
  std::string footer;  // stands below the options in the help
  std::vector<OptionOutline> options;
  std::vector<CommandOutline> commands;
};

// "on|off", for the help and the manual page; empty: there are none, or too many
// for a line.
std::string choices_text(const std::vector<std::string>& choices);

// `command` and all commands below it.
CommandOutline outline(Command command);

}  // namespace tandem::cli
