// Commands, their options and the checks of options' values: what Tandem uses of CLI11. Only the
// files of this folder include CLI11, whose headers take seconds to compile. Command and Option are
// handles: cheap to copy, valid as long as the CommandLine they come from. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tandem::cli {

// One option or flag of a command. Every function returns the option, so that calls can be chained.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  // The help shows as default what the variable holds now.
  Option capture_default_str() const;
  Option default_str(const std::string& text) const;
  Option required() const;
  Option expected(int min, int max) const;      // values
  Option group(const std::string& name) const;  // of the help; empty: not shown
  Option last_wins() const;                     // if given several times; otherwise an error
  // A list option takes one value each time it is given; otherwise all that follow.
  Option one_value_each() const;

  // What the value must be.
  Option in_range(int32_t min, int32_t max) const;
  Option in_range(int64_t min, int64_t max) const;
  Option in_range(double min, double max) const;
  Option positive() const;
  Option one_of(std::initializer_list<const char*> values) const;
  Option one_of(std::initializer_list<int32_t> values) const;
  Option one_of(const std::vector<std::string>& values) const;

 private:
  CLI::Option* option_;
};

// An option as it was given.
struct GivenOption {
  std::string name;                // without dashes
  std::string default_text;        // as the help shows it
  std::vector<std::string> given;  // empty: the default holds
  bool takes_many = false;         // each value that is given counts, not only the last one
};

class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}
  bool operator==(const Command&) const = default;  // the same command of one CommandLine

  Command add_subcommand(const std::string& name, const std::string& description) const;
  void require_subcommand() const;
  void footer(const std::string& text) const;
  void callback(std::function<void()> run) const;  // inside the parse, if this command is chosen

  // `variable` outlives the parse. Types: string, filesystem::path, int32_t, int64_t, uint16_t,
  // uint64_t, double, an optional or a vector of some of these: command.cc instantiates them.
  template <class Value>
  Option add_option(const std::string& names, Value& variable,
                    const std::string& description) const;
  // Requires a value and ignores it.
  Option add_option(const std::string& names, const std::string& description) const;
  // Value: std::string or double. `set` may refuse the value.
  template <class Value>
  Option add_option_function(const std::string& names, std::function<void(const Value&)> set,
                             const std::string& description) const;
  Option add_flag(const std::string& names, bool& variable, const std::string& description) const;
  Option add_flag(const std::string& names, const std::string& description) const;
  // `set` gets how often the flag was given, negative for its "!--no-" form.
  Option add_flag_function(const std::string& names, std::function<void(int64_t)> set) const;
  Option add_flag_callback(const std::string& names, std::function<void()> run,
                           const std::string& description) const;

  // Puts the options that have no group of their own yet into `name`.
  void group_new_options(const std::string& name) const;
  // Options that take one value may be given several times: the last one wins.
  void let_last_win() const;

  [[nodiscard]] bool parsed() const;
  [[nodiscard]] bool has_option(const std::string& name) const;  // "--config"
  // The first long name, without dashes, of the option that has this name; nullopt: none has.
  [[nodiscard]] std::optional<std::string> long_name(const std::string& name) const;
  [[nodiscard]] std::optional<Command> find_subcommand(const std::string& name) const;
  [[nodiscard]] Command parent() const;  // the command to which this subcommand was added
  [[nodiscard]] std::vector<GivenOption> values() const;  // of the options with a long name
  [[nodiscard]] CLI::App& app() const { return *app_; }   // for the files of this folder

 private:
  CLI::App* app_;
};

// Owns a command and the commands below it.
class CommandLine {
 public:
  explicit CommandLine(const std::string& description = "", const std::string& name = "");
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  [[nodiscard]] Command root() const { return Command(app_.get()); }
  void set_version_flag(const std::string& text);  // "--version" prints `text`
  void remove_help_flag();                         // "--help" is an unknown flag from here on
  [[nodiscard]] std::string help() const;

  // Sets the variables of all options. The exit code if the arguments asked for something that is
  // already done, such as --help; an error says what is wrong with the arguments.
  Result<std::optional<int>> parse(std::vector<std::string> arguments);

 private:
  std::unique_ptr<CLI::App> app_;
};

// For functions that parse a value: the value of `flag` is refused with `reason`.
[[noreturn]] void refuse(const std::string& flag, const std::string& reason);
// For callbacks: what the arguments ask for is done; no command runs.
[[noreturn]] void end_parse();

}  // namespace tandem::cli
