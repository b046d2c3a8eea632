#include "cli/option_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

namespace tandem::cli {
namespace {

std::string names_of(const OptionDescriptor& option) {
  const std::string name = fmt::format("--{}", option.name);
  return option.other_names.empty() ? name : fmt::format("{},{}", name, option.other_names);
}

void set(const OptionDescriptor& option, const OptionValue& value) {
  if (const Status status = set_option(option, value); !status.ok()) {
    throw CLI::ValidationError(status.error().message);
  }
}

// As the help shows the value: "TEXT:{on,off}", "INT"; see help.cc.
std::string type_name(const OptionDescriptor& option) {
  const std::string kind = option.value.kind == OptionKind::kNumber ? "INT" : "TEXT";
  return option.value.choices.empty()
             ? kind
             : fmt::format("{}:{{{}}}", kind, fmt::join(option.value.choices, ","));
}

// Lists in brackets, as CLI11 writes them.
std::string default_text(const OptionDescriptor& option) {
  const std::string text = option_text(option);
  return option.value.kind == OptionKind::kList && !text.empty() ? fmt::format("[{}]", text) : text;
}

CLI::Option* add(CLI::App& app, const OptionDescriptor& option) {
  const std::string names = names_of(option);
  switch (option.value.kind) {
    case OptionKind::kSwitch:
      return app.add_flag_function(
          names, [option](int64_t count) { set(option, count > 0); }, option.help);
    case OptionKind::kList:
      return app.add_option_function<std::vector<std::string>>(
          names, [option](const std::vector<std::string>& values) { set(option, values); },
          option.help);
    case OptionKind::kText:
    case OptionKind::kNumber:
    case OptionKind::kBytes:
      break;
  }
  return app
      .add_option_function<std::string>(
          names, [option](const std::string& text) { set(option, text); }, option.help)
      ->type_name(type_name(option));
}

}  // namespace

void add_options(Command command, const OptionTable& table) {
  for (const OptionDescriptor& option : table) {
    CLI::Option* added = add(command.app(), option);
    if (option.value.kind != OptionKind::kSwitch) {
      added->default_str(default_text(option));
    }
    if (!option.group.empty()) {
      added->group(option.group);
    }
  }
}

}  // namespace tandem::cli
