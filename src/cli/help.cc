#include "cli/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "cli/outline.h"

namespace tandem::cli {
namespace {

constexpr size_t kNameColumns = 34;
constexpr size_t kPageColumns = 100;

// "N", "on|off", "VALUE".
std::string value_of(const CLI::Option& option) {
  const std::string choices = choices_text(choices_of(option));
  if (!choices.empty()) {
    return choices;
  }
  return takes_number(option) ? "N" : "VALUE";
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

// CLI11 writes them into the name of the type: "TEXT:{on,off}".
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find(":{");
  std::vector<std::string> choices;
  if (begin == std::string::npos) {
    return choices;
  }
  std::istringstream members(type.substr(begin + 2, type.find('}') - begin - 2));
  for (std::string member; std::getline(members, member, ',');) {
    choices.push_back(member);
  }
  return choices;
}

bool takes_number(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::string kind = type.substr(0, type.find(':'));
  return kind == "INT" || kind == "UINT" || kind == "FLOAT";
}

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
