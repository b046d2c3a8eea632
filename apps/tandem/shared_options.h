// Options of the tables of `tandem serve` that commands without its other flags have, too: each
// with the name, help, default and range that it has there.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/command.h"
#include "device/open/open.h"
#include "node/node_options.h"
#include "options/option_descriptor.h"

namespace tandem {

// The options set their argument, which outlives them. `name` is in the node's table.
OptionDescriptor node_option(NodeOptions& node, std::string_view name);
OptionDescriptor log_level_option(std::string& level);

// The model, by flag or by place: a folder or file; and also a name on the hub.
OptionDescriptor model_option(NodeOptions& node);
OptionDescriptor model_or_hub_option(NodeOptions& node);

void add_node_options(cli::Command command, NodeOptions& node,
                      std::initializer_list<std::string_view> names);

// What --device names: NAME, NAME:OPTIONS or a back end's file; nullopt: the CPUs.
Result<std::optional<device::AcceleratorSpec>> named_device(const std::string& device);

// Lets the command's --isa be given by TANDEM_ISA.
void name_isa_variable(cli::Command command);

// "1.1 billion".
std::string rounded_count(int64_t count);

}  // namespace tandem
