#include "cli/argument_kinds.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>

namespace tandem::cli {
namespace {

bool looks_like_option(const std::string& argument) {
  return argument.size() > 1 && argument.starts_with('-');
}

// "--port" of "--port=8", "-o" of "-ofile".
std::string name_of(const std::string& argument) {
  return argument.starts_with("--") ? argument.substr(0, argument.find('='))
                                    : argument.substr(0, 2);
}

struct ValueCount {
  int min = 0;  // this number of arguments are values, even if they begin with '-'
  int max = 0;  // arguments beyond `min` are values if they do not begin with '-'
};

// The values that each occurrence of the option takes.
ValueCount values_of(const CLI::Option& option) {
  if (is_switch(option)) {
    return {};
  }
  const int min =
      std::max(1, std::min(option.get_type_size_min(), option.get_items_expected_min()));
  const int max = option.get_items_expected_max();
  const bool is_list = max >= CLI::detail::expected_max_vector_size / 16;
  return {.min = min, .max = is_list && !option.get_allow_extra_args() ? min : max};
}

class Classifier {
 public:
  Classifier(const std::vector<std::string>& arguments, const CLI::App& app)
      : arguments_(arguments), app_(&app) {}

  std::vector<Argument> run() {
    while (next() < arguments_.size()) {
      const std::string& argument = arguments_[next()];
      if (argument == "--") {
        found_.push_back({.kind = ArgumentKind::kTerminator});
        found_.resize(arguments_.size());
      } else if (looks_like_option(argument)) {
        take_option(argument);
      } else if (const CLI::App* inner = subcommand(argument); inner != nullptr) {
        app_ = inner;
        found_.push_back({.kind = ArgumentKind::kCommand});
      } else {
        found_.push_back({});
      }
    }
    return std::move(found_);
  }

 private:
  [[nodiscard]] size_t next() const { return found_.size(); }

  [[nodiscard]] const CLI::App* subcommand(const std::string& name) const {
    const std::vector<const CLI::App*> found =
        app_->get_subcommands([&](const CLI::App* command) { return command->get_name() == name; });
    return found.empty() ? nullptr : found.front();
  }

  void take_option(const std::string& argument) {
    const std::string name = name_of(argument);
    const CLI::Option* option = app_->get_option_no_throw(name);
    found_.push_back({.kind = ArgumentKind::kOption, .option = option});
    if (option == nullptr) {
      return;
    }
    const ValueCount count = values_of(*option);
    for (int taken = argument == name ? 0 : 1; next() < arguments_.size(); ++taken) {
      const bool may_take = taken < count.max && !looks_like_option(arguments_[next()]);
      if (taken >= count.min && !may_take) {
        break;
      }
      found_.push_back({.kind = ArgumentKind::kValue, .option = option});
    }
  }

  const std::vector<std::string>& arguments_;
  const CLI::App* app_;
  std::vector<Argument> found_;
};

}  // namespace

std::vector<Argument> classify(const std::vector<std::string>& arguments, const CLI::App& app) {
  return Classifier(arguments, app).run();
}

bool is_switch(const CLI::Option& option) { return option.get_items_expected_max() == 0; }

bool is_boolean(std::string_view text) {
  constexpr std::array<std::string_view, 16> kWords = {
      "true", "false", "on", "off", "yes", "no", "enable", "disable",
      "1",    "0",     "t",  "f",   "y",   "n",  "+",      "-"};
  return std::ranges::any_of(kWords, [&](std::string_view word) {
    return std::ranges::equal(word, text, {}, {}, [](unsigned char c) { return std::tolower(c); });
  });
}

Result<std::vector<std::string>> correct_values(const std::vector<std::string>& arguments,
                                                const CLI::App& app) {
  const std::vector<Argument> kinds = classify(arguments, app);
  std::vector<std::string> corrected;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t equals = arguments[i].find('=');
    if (kinds[i].kind != ArgumentKind::kOption || kinds[i].option == nullptr ||
        equals == std::string::npos || !arguments[i].starts_with("--")) {
      corrected.push_back(arguments[i]);
      continue;
    }
    const std::string name = arguments[i].substr(0, equals);
    const std::string value = arguments[i].substr(equals + 1);
    if (is_switch(*kinds[i].option) && !is_boolean(value)) {
      return invalid_argument(
          fmt::format("{}: '{}' is not possible; choose true or false", name, value), "");
    }
    if (value.empty()) {
      corrected.push_back(name);
      corrected.emplace_back();
    } else {
      corrected.push_back(arguments[i]);
    }
  }
  return corrected;
}

}  // namespace tandem::cli
