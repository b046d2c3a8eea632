// The options of a node, and those of the policies. Threads: see options/option_descriptor.h.
#pragma once

#include "node/node_options.h"
#include "options/option_descriptor.h"

namespace tandem {

// `options` must outlive the table and not be assigned to meanwhile.
OptionTable node_option_table(NodeOptions& options);

}  // namespace tandem
