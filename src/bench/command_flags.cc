#include "bench/command_flags.h"

#include <nlohmann/json.hpp>
#include <string>

#include "loadgen/recorded.h"

namespace tandem::bench {

nlohmann::ordered_json flags_json(cli::Command command) {
  nlohmann::ordered_json flags = nlohmann::ordered_json::object();
  for (const cli::GivenOption& option : command.values()) {
    if (option.name == "help" || option.name == "api-key" || option.name == "header") {
      continue;
    }
    std::string text = option.given.empty() ? option.default_text : "";
    for (const std::string& value : option.given) {
      text += (text.empty() ? "" : " ") + loadgen::recorded_value(option.name, value);
    }
    flags[option.name] = text;
  }
  return flags;
}

}  // namespace tandem::bench
