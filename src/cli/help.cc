#include "cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace tandem::cli {
namespace {

constexpr size_t kNameColumns = 34;
constexpr size_t kPageColumns = 100;

// "N", "on|off", "VALUE": not the limits, which an error names.
std::string value_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t colon = type.find(':');
  if (colon != std::string::npos && type.substr(colon + 1).starts_with('{')) {
    std::string members = type.substr(colon + 2, type.find('}') - colon - 2);
    std::ranges::replace(members, ',', '|');
    return members;
  }
  const std::string kind = type.substr(0, colon);
  return kind == "INT" || kind == "UINT" || kind == "FLOAT" ? "N" : "VALUE";
}

std::string name_of(const CLI::Option& option, bool is_positional) {
  std::string name = option.get_name(is_positional, !is_positional);
  std::ranges::replace(name, ',', ' ');
  if (is_positional || option.get_items_expected_max() == 0) {
    return name;
  }
  return fmt::format("{} {}{}", name, value_of(option),
                     option.get_items_expected_max() > 1 ? " ..." : "");
}

}  // namespace

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  std::string text = option->get_description();
  if (!option->get_default_str().empty()) {
    text += fmt::format(" [{}]", option->get_default_str());
  }
  std::string line = "  " + name_of(*option, is_positional);
  std::string out;
  std::istringstream words(text);
  std::string word;
  bool at_start = true;
  while (words >> word) {
    const size_t used = std::max(line.size(), kNameColumns);
    if (line.size() >= kNameColumns && (at_start || used + 1 + word.size() > kPageColumns)) {
      out += line + "\n";
      line.clear();
      at_start = true;
    }
    line.resize(std::max(line.size(), kNameColumns), ' ');
    line += (at_start ? "" : " ") + word;
    at_start = false;
  }
  return out + line + "\n";
}

}  // namespace tandem::cli
