#include "cli/outline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "cli/help.h"

namespace tandem::cli {
namespace {

ValueKind kind_of(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) {
    return ValueKind::kNone;
  }
  if (!choices_of(option).empty()) {
    return ValueKind::kChoice;
  }
  return takes_number(option) ? ValueKind::kNumber : ValueKind::kText;
}

OptionOutline outline_of(const CLI::Option& option) {
  OptionOutline out{.place = option.get_positional() ? option.get_name(true) : "",
                    .value = kind_of(option),
                    .choices = choices_of(option),
                    .takes_many = option.get_items_expected_max() > 1,
                    .help = option.get_description(),
                    .default_text = option.get_default_str(),
                    .group = option.get_group()};
  for (const std::string& name : option.get_snames()) {
    out.flags.push_back("-" + name);
  }
  for (const std::string& name : option.get_lnames()) {
    out.flags.push_back("--" + name);
  }
  return out;
}

CommandOutline outline_of(const CLI::App& app, const std::string& above) {
  CommandOutline out{.name = app.get_name(),
                     .path = above.empty() ? app.get_name() : above + " " + app.get_name(),
                     .help = app.get_description(),
                     .footer = app.get_footer()};
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) {
      out.options.push_back(outline_of(*option));
    }
  }
  for (const CLI::App* command : app.get_subcommands({})) {
    out.commands.push_back(outline_of(*command, out.path));
  }
  return out;
}

}  // namespace

std::string choices_text(const std::vector<std::string>& choices) {
  constexpr size_t kMostColumns = 50;
  std::string text = fmt::format("{}", fmt::join(choices, "|"));
  return text.size() > kMostColumns ? "" : text;
}

CommandOutline outline(Command command) { return outline_of(command.app(), ""); }

}  // namespace tandem::cli
