#include "cli/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string_view>

#include "cli/argument_kinds.h"
#include "cli/config_file.h"

namespace tandem::cli {
namespace {

// Levenshtein distance.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, substituted}));
    }
  }
  return row.back();
}

bool is_shown(const CLI::Option& option) { return !option.get_group().empty(); }

// Those with a variable: not help, and not what is accepted but not shown.
bool has_variable(const CLI::Option& option) {
  return !option.get_lnames().empty() && option.get_lnames().front() != "help" && is_shown(option);
}

std::string variable_of(const CLI::Option& option) {
  std::string variable = "TANDEM_" + option.get_lnames().front();
  std::ranges::transform(variable, variable.begin(), [](char c) {
    return c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  });
  return variable;
}

bool is_address(std::string_view value) {
  return value.starts_with("tcp://") || value.starts_with("udp://") || value.starts_with("sctp://");
}

// As Kubernetes names and fills the variables of a Service: NAME_SERVICE_HOST, NAME_SERVICE_PORT
// and NAME_SERVICE_PORT_HTTP; NAME_PORT and NAME_PORT_8000_TCP with an address;
// NAME_PORT_8000_TCP_ADDR, _PORT and _PROTO.
bool is_from_kubernetes(std::string_view name, std::string_view value) {
  if (name.ends_with("_SERVICE_HOST") || name.find("_SERVICE_PORT") != name.npos) {
    return true;
  }
  if (is_address(value) && name.find("_PORT") != name.npos) {
    return true;
  }
  for (const std::string_view end : {"_ADDR", "_PORT", "_PROTO"}) {
    const std::string_view rest = name.substr(0, name.size() - std::min(end.size(), name.size()));
    if (name.ends_with(end) && name.find("_PORT_") != name.npos &&
        (rest.ends_with("_TCP") || rest.ends_with("_UDP") || rest.ends_with("_SCTP"))) {
      return true;
    }
  }
  return false;
}

// Empty: it is not set, or Kubernetes set it.
std::string value_of_variable(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());  // NOLINT(concurrency-mt-unsafe): at start
  return value == nullptr || is_from_kubernetes(variable, value) ? "" : value;
}

void name_variable(CLI::Option& option) {
  if (!has_variable(option)) {
    return;
  }
  const std::string variable = variable_of(option);
  const std::string value = value_of_variable(variable);
  if (value.empty()) {
    return;
  }
  option.envname(variable);
  if (is_switch(option) && !is_boolean(value)) {
    // Values of arguments were checked before (correct_values), so this value is the variable's.
    option.check([variable, value](const std::string& given) {
      return given != value
                 ? std::string()
                 : fmt::format("the variable {} is '{}'; choose true or false", variable, value);
    });
  }
}

// With hidden options, which are accepted but never proposed.
std::vector<std::string> all_flags_of(Command command) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.app().get_options()) {
    for (const std::string& name : option->get_lnames()) {
      flags.push_back("--" + name);
    }
  }
  return flags;
}

std::vector<std::string> flags_of(Command command) {
  std::vector<std::string> flags;
  for (const CLI::Option* option :
       command.app().get_options([](const CLI::Option* o) { return is_shown(*o); })) {
    for (const std::string& name : option->get_lnames()) {
      flags.push_back("--" + name);
    }
  }
  return flags;
}

// The option that may be given by name and by place: --model of `serve MODEL`. Null: there is none.
const CLI::Option* option_with_place(const CLI::App& app) {
  const std::vector<const CLI::Option*> options = app.get_options([](const CLI::Option* option) {
    return option->get_positional() && !option->get_lnames().empty();
  });
  return options.empty() ? nullptr : options.front();
}

// One value of that option: arguments[at], and the argument before it if that is its flag.
struct PlacedValue {
  std::string text;
  size_t at = 0;
  size_t arguments = 1;
};

// The values by name, and the first by place. Nothing if an option is unknown: it may take values.
std::vector<PlacedValue> placed_values(const std::vector<std::string>& arguments,
                                       const CLI::Option& option, const CLI::App& app) {
  std::vector<PlacedValue> values;
  const std::vector<Argument> kinds = classify(arguments, app);
  bool by_place = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t equals = arguments[i].find('=');
    if (kinds[i].kind == ArgumentKind::kOption && kinds[i].option == nullptr) {
      return {};
    }
    if (kinds[i].kind == ArgumentKind::kPlace && !by_place) {
      by_place = true;
      values.push_back({.text = arguments[i], .at = i});
    } else if (kinds[i].kind == ArgumentKind::kValue && kinds[i].option == &option) {
      values.push_back({.text = arguments[i], .at = i - 1, .arguments = 2});
    } else if (kinds[i].kind == ArgumentKind::kOption && kinds[i].option == &option &&
               equals != std::string::npos) {
      values.push_back({.text = arguments[i].substr(equals + 1), .at = i});
    }
  }
  return values;
}

// Leaves one value of the option that may be given by name and by place, which CLI11 would not
// compare: the value on the command line wins over the file's, and two that differ are an error.
Status keep_one_place(std::vector<std::string>& from_file, std::vector<std::string>& given,
                      const CLI::App& app) {
  const CLI::Option* option = option_with_place(app);
  if (option == nullptr) {
    return {};
  }
  const std::vector<PlacedValue> values = placed_values(given, *option, app);
  if (values.empty()) {
    return {};
  }
  if (values.front().text.empty()) {
    const std::string name = option->get_lnames().front();
    return invalid_argument(fmt::format("the {} is empty; name one, or leave it out", name), name);
  }
  for (size_t i = values.size() - 1; i > 0; --i) {
    if (values[i].text != values.front().text) {
      return invalid_argument(
          fmt::format("--{0} is given as '{1}' and as '{2}', by name or by place; leave one of "
                      "them out",
                      option->get_lnames().front(), values.front().text, values[i].text),
          option->get_lnames().front());
    }
    const auto first = given.begin() + static_cast<std::ptrdiff_t>(values[i].at);
    given.erase(first, first + static_cast<std::ptrdiff_t>(values[i].arguments));
  }
  std::erase_if(from_file, [&](const std::string& flag) {
    return app.get_option_no_throw(flag.substr(0, flag.find('='))) == option;
  });
  return {};
}

// The file of `--config` must not name another one, which would not be read.
Status check_no_config_inside(const ConfigNode& file, const std::string& path) {
  for (const ConfigNode& entry : file.inner) {
    if (flag_of_key(entry.key) == "--config") {
      return invalid_argument(
          fmt::format("the key '{}' in the config file '{}' (line {}) cannot name another file; "
                      "write its keys here, or give --config several times",
                      entry.key, path, entry.line),
          "config");
    }
  }
  return {};
}

}  // namespace

std::string nearest_name(const std::string& unknown, const std::vector<std::string>& known) {
  if (std::ranges::find(known, unknown) != known.end()) {
    return "";  // something else is wrong with it
  }
  std::string best;
  size_t best_distance = 4;
  for (const std::string& candidate : known) {
    const size_t d = distance(unknown, candidate);
    if (d < best_distance && d < candidate.size()) {
      best_distance = d;
      best = candidate;
    }
  }
  return best.empty() ? "" : fmt::format(", did you mean {}?", best);
}

std::string nearest_flag(const std::string& unknown, Command command) {
  return nearest_name(unknown.substr(0, unknown.find('=')), flags_of(command));
}

std::string nearest_key(std::string_view unknown, Command command) {
  constexpr size_t kDashes = 2;
  std::vector<std::string> keys = flags_of(command);
  for (std::string& key : keys) {
    key.erase(0, kDashes);
  }
  return nearest_name(flag_of_key(unknown).substr(kDashes), keys);
}

std::string unknown_subcommand(const std::vector<std::string>& arguments, Command root) {
  const CLI::App* app = &root.app();
  for (const std::string& argument : arguments) {
    const std::vector<const CLI::App*> known = app->get_subcommands({});
    if (known.empty() || argument.starts_with('-')) {
      return "";
    }
    std::vector<std::string> names;
    const CLI::App* found = nullptr;
    for (const CLI::App* command : known) {
      names.push_back(command->get_name());
      found = command->get_name() == argument ? command : found;
    }
    if (found == nullptr) {
      return fmt::format("unknown subcommand '{}'{} (known: {})", argument,
                         nearest_name(argument, names), fmt::join(names, ", "));
    }
    app = found;
  }
  return "";
}

Result<std::vector<std::string>> expand_config(const std::vector<std::string>& arguments,
                                               Command command) {
  std::vector<std::string> from_file;
  std::vector<std::string> rest;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string path;
    if (arguments[i] == "--config" && i + 1 < arguments.size()) {
      path = arguments[++i];
    } else if (arguments[i].starts_with("--config=")) {
      path = arguments[i].substr(9);
    } else {
      rest.push_back(arguments[i]);
      continue;
    }
    ASSIGN_OR_RETURN(const std::string text, read_config_text(path));
    ASSIGN_OR_RETURN(const ConfigNode file, parse_config(text, path));
    RETURN_IF_ERROR(check_no_config_inside(file, path));
    ASSIGN_OR_RETURN(const std::vector<std::string> flags, config_flags(file, path, command));
    from_file.insert(from_file.end(), flags.begin(), flags.end());
  }
  RETURN_IF_ERROR(keep_one_place(from_file, rest, command.app()));
  from_file.insert(from_file.end(), rest.begin(), rest.end());
  return from_file;
}

void name_environment(Command command) {
  for (CLI::Option* option : command.app().get_options()) {
    name_variable(*option);
  }
}

void name_environment(Command command, const std::string& flag) {
  if (CLI::Option* option = command.app().get_option_no_throw(flag); option != nullptr) {
    name_variable(*option);
  }
}

std::vector<std::string> flags_of_variable(Command command, const std::string& flag) {
  const CLI::Option* option = command.app().get_option_no_throw(flag);
  if (option == nullptr || !has_variable(*option)) {
    return {};
  }
  const std::string value = value_of_variable(variable_of(*option));
  return value.empty() ? std::vector<std::string>{}
                       : std::vector{fmt::format("{}={}", flag, value)};
}

std::vector<std::string> unread_variables(Command command, const char* const* environment) {
  // Read without a flag of the name, here or by the scripts.
  std::vector<std::string> known = {
      "TANDEM_CONFIG",         "TANDEM_JOBS",          "TANDEM_SHARED",
      "TANDEM_BINARY",         "TANDEM_CUDA_PRODUCTS", "TANDEM_CUDA_RESIDUAL",
      "TANDEM_CUBLASLT",       "TANDEM_TEST_DEVICE",   "TANDEM_CUDA_KERNELS",
      "TANDEM_CUDA_ATTENTION", "TANDEM_CUDA_DEPTH",    "TANDEM_NVML",
      "TANDEM_CUDA_PREFILL",   "TANDEM_CUDA_GRAPHS",   "TANDEM_CUDA_ALGORITHMS"};
  for (const CLI::Option* option : command.app().get_options()) {
    if (has_variable(*option)) {
      known.push_back(variable_of(*option));
    }
  }
  std::vector<std::string> from_kubernetes;
  std::vector<std::string> lines;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (!name.starts_with("TANDEM_")) {
      continue;
    }
    if (is_from_kubernetes(name, entry.substr(std::min(entry.size(), name.size() + 1)))) {
      from_kubernetes.emplace_back(name);
    } else if (std::ranges::count(known, name) == 0) {
      lines.push_back(fmt::format("the variable {} is not known and is ignored{}", name,
                                  nearest_name(std::string(name), known)));
    }
  }
  if (!from_kubernetes.empty()) {
    std::ranges::sort(from_kubernetes);
    lines.push_back(
        fmt::format("the variables {} are ignored: Kubernetes sets them in every pod for a Service "
                    "of that name; to be without them rename the Service, or give the pod "
                    "enableServiceLinks: false",
                    fmt::join(from_kubernetes, ", ")));
  }
  return lines;
}

std::string unknown_flag(const std::vector<std::string>& arguments, Command command) {
  const std::vector<std::string> known = all_flags_of(command);
  for (const std::string& argument : arguments) {
    if (argument == "--") {
      break;
    }
    const std::string flag = argument.substr(0, argument.find('='));
    if (flag.starts_with("--") && std::ranges::count(known, flag) == 0) {
      return fmt::format("unknown flag {}{}", flag, nearest_flag(flag, command));
    }
  }
  return "";
}

}  // namespace tandem::cli
