// The option --numa of commands that open a device without the flags of `serve`.
#pragma once

#include "cli/command.h"
#include "device/cpu/topology.h"

namespace tandem {

// `choice` outlives the command. What cannot be parsed is told as other bad options are.
void add_numa_option(cli::Command command, device::NumaChoice& choice);

}  // namespace tandem
