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
  const std::vector<std::string>& names = option.value.range.names;
  return names.empty() ? kind : fmt::format("{}:{{{}}}", kind, fmt::join(names, ","));
}

// "Sequences that run at a time (1 to 65536 sequences)".
std::string description(const OptionDescriptor& option) {
  const std::string range = range_text(option);
  return range.empty() ? option.help : fmt::format("{} ({})", option.help, range);
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
          names, [option](int64_t count) { set(option, count > 0); }, description(option));
    case OptionKind::kList:
      // One value each time: a model may follow.
      return app
          .add_option_function<std::vector<std::string>>(
              names, [option](const std::vector<std::string>& values) { set(option, values); },
              description(option))
          ->allow_extra_args(false);
    case OptionKind::kText:
    case OptionKind::kNumber:
    case OptionKind::kBytes:
      break;
  }
  return app
      .add_option_function<std::string>(
          names, [option](const std::string& text) { set(option, text); }, description(option))
      ->type_name(type_name(option));
}

}  // namespace

Option add_option(Command command, const OptionDescriptor& option) {
  CLI::Option* added = add(command.app(), option);
  if (option.value.kind != OptionKind::kSwitch) {
    added->default_str(default_text(option));
  }
  if (!option.group.empty()) {
    added->group(option.group);
  }
  return Option(added);
}

void add_options(Command command, const OptionTable& table) {
  for (const OptionDescriptor& option : table) {
    add_option(command, option);
  }
}

}  // namespace tandem::cli
