// Flags of a command from a table of options (options/option_descriptor.h). What reads flags reads
// these: the configuration file, the environment, the help and the search for the nearest name
// (arguments.h). One thread.
#pragma once

#include "cli/command.h"
#include "options/option_descriptor.h"

namespace tandem::cli {

// Adds the options in the order of the table, each in its group of the help. Defaults in the help
// are what the variables hold now. The variables outlive the parse; a value that an option refuses
// is a usage error.
void add_options(Command command, const OptionTable& table);
Option add_option(Command command, const OptionDescriptor& option);

}  // namespace tandem::cli
