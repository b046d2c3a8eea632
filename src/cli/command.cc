#include "cli/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "cli/argument_kinds.h"
#include "cli/help.h"

namespace tandem::cli {
namespace {

// Checks of ranges compare, and every comparison with it is false.
std::string no_nan(const std::string& text) {
  return std::isnan(std::strtod(text.c_str(), nullptr)) ? "Value nan is not a number" : "";
}

}  // namespace

Option Option::capture_default_str() const {
  option_->capture_default_str();
  return *this;
}

Option Option::default_str(const std::string& text) const {
  option_->default_str(text);
  return *this;
}

Option Option::required() const {
  option_->required();
  return *this;
}

Option Option::expected(int min, int max) const {
  option_->expected(min, max);
  return *this;
}

Option Option::group(const std::string& name) const {
  option_->group(name);
  return *this;
}

Option Option::last_wins() const {
  option_->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  return *this;
}

Option Option::one_value_each() const {
  option_->allow_extra_args(false);
  return *this;
}

Option Option::in_range(int32_t min, int32_t max) const {
  option_->check(CLI::Range(min, max));
  return *this;
}

Option Option::in_range(int64_t min, int64_t max) const {
  option_->check(CLI::Range(min, max));
  return *this;
}

Option Option::in_range(double min, double max) const {
  option_->check(CLI::Range(min, max))->check(no_nan);
  return *this;
}

Option Option::positive() const {
  option_->check(CLI::PositiveNumber)->check(no_nan);
  return *this;
}

Option Option::one_of(std::initializer_list<const char*> values) const {
  option_->check(CLI::IsMember(std::vector<std::string>(values.begin(), values.end())));
  return *this;
}

Option Option::one_of(std::initializer_list<int32_t> values) const {
  option_->check(CLI::IsMember(std::vector<int32_t>(values)));
  return *this;
}

Option Option::one_of(const std::vector<std::string>& values) const {
  option_->check(CLI::IsMember(values));
  return *this;
}

Command Command::add_subcommand(const std::string& name, const std::string& description) const {
  return Command(app_->add_subcommand(name, description));
}

void Command::require_subcommand() const { app_->require_subcommand(1); }

void Command::footer(const std::string& text) const { app_->footer(text); }

void Command::callback(std::function<void()> run) const { app_->callback(std::move(run)); }

template <class Value>
Option Command::add_option(const std::string& names, Value& variable,
                           const std::string& description) const {
  return Option(app_->add_option(names, variable, description));
}

template Option Command::add_option(const std::string&, std::string&, const std::string&) const;
template Option Command::add_option(const std::string&, int32_t&, const std::string&) const;
template Option Command::add_option(const std::string&, int64_t&, const std::string&) const;
template Option Command::add_option(const std::string&, uint16_t&, const std::string&) const;
template Option Command::add_option(const std::string&, uint64_t&, const std::string&) const;
template Option Command::add_option(const std::string&, double&, const std::string&) const;
template Option Command::add_option(const std::string&, std::filesystem::path&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<std::string>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<int32_t>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<int64_t>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<double>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<double>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<std::string>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<int32_t>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<int64_t>&,
                                    const std::string&) const;

Option Command::add_option(const std::string& names, const std::string& description) const {
  return Option(app_->add_option(names, description));
}

template <class Value>
Option Command::add_option_function(const std::string& names, std::function<void(const Value&)> set,
                                    const std::string& description) const {
  return Option(app_->add_option_function<Value>(names, set, description));
}

template Option Command::add_option_function<std::string>(const std::string&,
                                                          std::function<void(const std::string&)>,
                                                          const std::string&) const;
template Option Command::add_option_function<double>(const std::string&,
                                                     std::function<void(const double&)>,
                                                     const std::string&) const;

Option Command::add_flag(const std::string& names, bool& variable,
                         const std::string& description) const {
  return Option(app_->add_flag(names, variable, description));
}

Option Command::add_flag(const std::string& names, const std::string& description) const {
  return Option(app_->add_flag(names, description));
}

Option Command::add_flag_function(const std::string& names,
                                  std::function<void(int64_t)> set) const {
  return Option(app_->add_flag_function(names, set));
}

Option Command::add_flag_callback(const std::string& names, std::function<void()> run,
                                  const std::string& description) const {
  return Option(app_->add_flag_callback(names, std::move(run), description));
}

void Command::group_new_options(const std::string& name) const {
  for (CLI::Option* option : app_->get_options()) {
    if (option->get_group() == "Options" && option != app_->get_help_ptr()) {
      option->group(name);
    }
  }
}

void Command::let_last_win() const {
  for (CLI::Option* option : app_->get_options()) {
    if (option->get_items_expected_max() <= 1) {
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
  }
}

bool Command::parsed() const { return app_->parsed(); }

bool Command::has_option(const std::string& name) const {
  return std::as_const(*app_).get_option_no_throw(name) != nullptr;
}

std::optional<std::string> Command::long_name(const std::string& name) const {
  const CLI::Option* option = std::as_const(*app_).get_option_no_throw(name);
  return option == nullptr || option->get_lnames().empty() ? std::nullopt
                                                           : std::optional(option->get_lnames()[0]);
}

std::optional<Command> Command::find_subcommand(const std::string& name) const {
  const auto found =
      app_->get_subcommands([&](const CLI::App* command) { return command->get_name() == name; });
  return found.empty() ? std::nullopt : std::optional(Command(found.front()));
}

Command Command::parent() const { return Command(app_->get_parent()); }

std::vector<GivenOption> Command::values() const {
  std::vector<GivenOption> values;
  for (const CLI::Option* option : std::as_const(*app_).get_options()) {
    if (option->get_lnames().empty()) {
      continue;
    }
    values.push_back({.name = option->get_lnames().front(),
                      .default_text = option->get_default_str(),
                      .given = option->count() > 0 ? option->results() : std::vector<std::string>{},
                      .takes_many = option->get_items_expected_max() > 1});
  }
  return values;
}

CommandLine::CommandLine(const std::string& description, const std::string& name)
    : app_(std::make_unique<CLI::App>(description, name)) {
  app_->formatter(std::make_shared<HelpFormatter>());  // of the subcommands, too
}

CommandLine::~CommandLine() = default;

void CommandLine::set_version_flag(const std::string& text) {
  app_->set_version_flag("--version", text);
}

void CommandLine::remove_help_flag() { app_->set_help_flag(); }

std::string CommandLine::help() const { return app_->help(); }

namespace {

// "--model is required: Folder with ...", of the command that was chosen.
std::string with_description(const CLI::App& root, const std::string& message) {
  const CLI::App* command = &root;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
  }
  const CLI::Option* option = command->get_option_no_throw(message.substr(0, message.find(' ')));
  return option == nullptr || option->get_description().empty()
             ? message
             : fmt::format("{}: {}", message, option->get_description());
}

}  // namespace

Result<std::optional<int>> CommandLine::parse(std::vector<std::string> arguments) {
  ASSIGN_OR_RETURN(arguments, correct_values(arguments, *app_));
  std::ranges::reverse(arguments);  // CLI11 takes them last first
  try {
    app_->parse(std::move(arguments));
  } catch (const CLI::Success& success) {
    return std::optional(app_->exit(success));
  } catch (const CLI::RequiredError& error) {
    return invalid_argument(with_description(*app_, error.what()), "");
  } catch (const CLI::ParseError& error) {
    return invalid_argument(error.what(), "");
  }
  return std::optional<int>();
}

void refuse(const std::string& flag, const std::string& reason) {
  throw CLI::ValidationError(flag, reason);
}

void end_parse() { throw CLI::Success(); }

}  // namespace tandem::cli
