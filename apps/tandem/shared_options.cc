#include "shared_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log_levels.h"
#include "cli/arguments.h"
#include "cli/option_flags.h"
#include "node/option_table.h"
#include "options/option_values.h"

namespace tandem {

namespace {

OptionDescriptor take(OptionTable& table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &OptionDescriptor::name);
  CHECK(found != table.end(), "a node has no option --{}", name);
  return std::move(*found);
}

}  // namespace

OptionDescriptor node_option(NodeOptions& node, std::string_view name) {
  OptionTable table = node_option_table(node);
  return take(table, name);
}

OptionDescriptor log_level_option(std::string& level) {
  return {.name = "log-level",
          .help = "What the log says on standard error",
          .value = values::parsed_text(
              [&level](const std::string& text) -> Status {
                RETURN_IF_ERROR(log::check_level(text));
                level = text;
                return {};
              },
              [&level] { return level; }, log::level_names())};
}

OptionDescriptor model_option(NodeOptions& node) { return node_option(node, "model"); }

OptionDescriptor model_or_hub_option(NodeOptions& node) {
  OptionDescriptor option = model_option(node);
  option.help += "; or the name of a model on the hub: ORG/NAME[@REVISION], ORG/NAME:FILE.gguf";
  return option;
}

void add_node_options(cli::Command command, NodeOptions& node,
                      std::initializer_list<std::string_view> names) {
  OptionTable table = node_option_table(node);  // takes a while to make
  for (const std::string_view name : names) {
    cli::add_option(command, take(table, name));
  }
  name_isa_variable(command);
}

Result<std::optional<device::AcceleratorSpec>> named_device(const std::string& device) {
  if (device == "auto" || device == "cpu") {
    return std::optional<device::AcceleratorSpec>();
  }
  const size_t file = device.rfind('/');
  const size_t colon = device.find(':', file == std::string::npos ? 0 : file);
  const std::string name = device.substr(0, colon);
  if (file == std::string::npos && name != "cuda") {
    return invalid_argument(
        fmt::format("--device: '{}' is not possible; choose auto, cpu, cuda, cuda:N for GPU N, or "
                    "give the path of a back end's file",
                    device),
        "device");
  }
  ASSIGN_OR_RETURN(
      device::AcceleratorSpec spec,
      device::accelerator_spec(name, colon == std::string::npos ? "" : device.substr(colon + 1)));
  return std::optional(std::move(spec));
}

void name_isa_variable(cli::Command command) { cli::name_environment(command, "--isa"); }

std::string rounded_count(int64_t count) {
  return count < 1'000'000'000 ? fmt::format("{:.3g} million", static_cast<double>(count) / 1e6)
                               : fmt::format("{:.3g} billion", static_cast<double>(count) / 1e9);
}

}  // namespace tandem
