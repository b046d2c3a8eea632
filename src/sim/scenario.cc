#include "sim/scenario.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "cli/arguments.h"
#include "sim/scenario_errors.h"

namespace tandem::sim {
namespace {

using cli::ConfigNode;
using Kind = ConfigNode::Kind;

struct SpecPart {
  size_t begin = 0;  // of the value
  size_t end = 0;
};

// Where the value of `key` stands in "name=chat;request-rate=2".
std::optional<SpecPart> find_part(const std::string& spec, std::string_view key) {
  for (size_t begin = 0; begin <= spec.size();) {
    const size_t end = std::min(spec.find(';', begin), spec.size());
    const std::string_view part = std::string_view(spec).substr(begin, end - begin);
    if (part.starts_with(key) && part.substr(key.size()).starts_with('=')) {
      return SpecPart{.begin = begin + key.size() + 1, .end = end};
    }
    begin = end + 1;
  }
  return std::nullopt;
}

std::string name_in(const std::string& spec) {
  const std::optional<SpecPart> part = find_part(spec, "name");
  return part ? spec.substr(part->begin, part->end - part->begin) : "";
}

// The texts of all streams, or of all engines.
std::vector<ConfigNode*> members_of(ConfigNode& options, const std::string& option) {
  std::vector<ConfigNode*> members;
  for (ConfigNode& entry : options.inner) {
    if (cli::flag_of_key(entry.key) != "--" + option) {
      continue;
    }
    if (entry.kind == Kind::kText) {
      members.push_back(&entry);
    }
    for (ConfigNode& item : entry.inner) {
      members.push_back(&item);
    }
  }
  return members;
}

void erase_option(ConfigNode& options, const std::string& option, const ScenarioKeys& keys) {
  std::erase_if(options.inner, [&](const ConfigNode& entry) {
    return option_of(entry.key, keys.options) == option;
  });
}

// The text of the stream or engine that a key of it is varied of.
Result<ConfigNode*> find_member(const Scenario& scenario, const VariedKey& varied,
                                ConfigNode& options) {
  std::vector<std::string> names;
  ConfigNode* found = nullptr;
  for (ConfigNode* member : members_of(options, varied.option)) {
    names.push_back(name_in(member->text));
    if (names.back() != varied.member) {
      continue;
    }
    if (found != nullptr) {
      return error_at(scenario.file, varied.line,
                      fmt::format("vary: two {}s are named '{}'; give them other names",
                                  varied.option, varied.member));
    }
    found = member;
  }
  if (found == nullptr) {
    std::erase(names, "");
    return error_at(
        scenario.file, varied.line,
        names.empty()
            ? fmt::format("vary: no {0} has a name; give the {0} of '{1}' name: {2}", varied.option,
                          varied.key, varied.member)
            : fmt::format("vary: no {} is named '{}'{}; there are {}", varied.option, varied.member,
                          cli::nearest_name(varied.member, names), fmt::join(names, ", ")));
  }
  return found;
}

void set_field(ConfigNode& stream, const std::string& field, const std::string& value) {
  if (const std::optional<SpecPart> part = find_part(stream.text, field)) {
    stream.text.replace(part->begin, part->end - part->begin, value);
  } else {
    stream.text += fmt::format("{}{}={}", stream.text.empty() ? "" : ";", field, value);
  }
}

Status check_members(const Scenario& scenario) {
  for (const VariedKey& varied : scenario.vary) {
    if (varied.field.empty()) {
      continue;
    }
    ConfigNode options = scenario.options;
    const Result<ConfigNode*> found = find_member(scenario, varied, options);
    if (!found.ok()) {
      return found.error();
    }
    for (const ConfigNode& value : varied.values) {
      if (value.text.find(';') != std::string::npos) {
        return error_at(scenario.file, value.line,
                        fmt::format("vary: the value '{}' of '{}' holds a ;, which sets keys of "
                                    "{} {} apart; leave it out",
                                    value.text, varied.key, varied.option == "engine" ? "an" : "a",
                                    varied.option));
      }
    }
  }
  return {};
}

// "01-policy=sarathi,request-rate=2": what names of folders may hold, and not too long.
std::string name_of(size_t number, size_t points, const Scenario& scenario,
                    const std::vector<ConfigNode>& values) {
  constexpr size_t kMaxName = 80;
  std::string name;
  for (size_t i = 0; i < values.size(); ++i) {
    const VariedKey& varied = scenario.vary[i];
    name += fmt::format("{}{}={}", i == 0 ? "" : ",",
                        varied.member.empty() ? varied.option : varied.member + "." + varied.field,
                        values[i].text);
  }
  for (char& c : name) {
    const bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    c = is_word || std::string_view("._=,+-").find(c) != std::string_view::npos ? c : '_';
  }
  return fmt::format("{:0{}}-{}", number, std::to_string(points).size(), name.substr(0, kMaxName));
}

// "--policy: 'x' is not possible" is about "policy".
std::string option_in(const Error& error, const ScenarioKeys& keys) {
  if (!error.param.empty()) {
    return option_of(error.param.substr(0, error.param.find('#')), keys.options);
  }
  const size_t dashes = error.message.find("--");
  if (dashes == std::string::npos) {
    return "";
  }
  size_t end = dashes + 2;
  while (end < error.message.size() &&
         ((error.message[end] >= 'a' && error.message[end] <= 'z') || error.message[end] == '-')) {
    ++end;
  }
  return option_of(error.message.substr(dashes + 2, end - dashes - 2), keys.options);
}

// The line of "engine#2", the second item of the entry; that of the entry, if there is none.
int line_of(const ConfigNode& entry, const std::string& param) {
  const size_t mark = param.find('#');
  size_t number = 0;
  if (mark != std::string::npos) {
    std::from_chars(param.data() + mark + 1, param.data() + param.size(), number);
  }
  const bool has_line =
      number > 0 && number <= entry.inner.size() && entry.inner[number - 1].line > 0;
  return has_line ? entry.inner[number - 1].line : entry.line;
}

}  // namespace

Error error_at(const std::string& file, int line, const std::string& what) {
  return invalid_argument(fmt::format("{}:{}: {}", file, line, what), "config");
}

std::string option_of(std::string_view key, cli::Command command) {
  return command.long_name(cli::flag_of_key(key)).value_or("");
}

Status add_given(Scenario& scenario, const std::vector<cli::GivenOption>& given,
                 const ScenarioKeys& keys) {
  for (const cli::GivenOption& option : given) {
    if (option.given.empty()) {
      continue;
    }
    for (const VariedKey& varied : scenario.vary) {
      if (varied.option == option.name) {
        return error_at(scenario.file, varied.line,
                        fmt::format("vary: '{}' is also set by --{} on the command line; leave one "
                                    "of them out",
                                    varied.key, option.name));
      }
    }
    ConfigNode entry{.key = option.name, .kind = Kind::kList, .text = {}, .inner = {}, .line = 0};
    if (option.takes_many) {
      for (const ConfigNode& old : scenario.options.inner) {
        if (option_of(old.key, keys.options) != option.name) {
          continue;
        }
        if (old.kind == Kind::kList) {
          entry.inner = old.inner;
        } else {
          entry.inner.push_back(old);
        }
      }
    }
    for (const std::string& value : option.given) {
      entry.inner.push_back(
          {.key = {}, .kind = Kind::kText, .text = value, .inner = {}, .line = 0});
    }
    if (!option.takes_many) {
      entry.kind = Kind::kText;
      entry.text = option.given.back();
      entry.inner.clear();
    }
    erase_option(scenario.options, option.name, keys);
    scenario.options.inner.push_back(std::move(entry));
  }
  return {};
}

Result<std::vector<SweepPoint>> points_of(const Scenario& scenario) {
  RETURN_IF_ERROR(check_members(scenario));
  std::vector<SweepPoint> points(scenario.vary.empty() ? 0 : 1);
  for (const VariedKey& varied : scenario.vary) {
    std::vector<SweepPoint> more;
    for (const SweepPoint& base : points) {
      for (const ConfigNode& value : varied.values) {
        more.emplace_back(base).values.push_back(value);
      }
    }
    points = std::move(more);
  }
  for (size_t i = 0; i < points.size(); ++i) {
    points[i].name = name_of(i + 1, points.size(), scenario, points[i].values);
  }
  return points;
}

ConfigNode point_options(const Scenario& scenario, const SweepPoint& point,
                         const ScenarioKeys& keys) {
  ConfigNode options = scenario.options;
  for (size_t i = 0; i < point.values.size(); ++i) {
    const VariedKey& varied = scenario.vary[i];
    if (!varied.field.empty()) {
      set_field(*find_member(scenario, varied, options).value(), varied.field,
                point.values[i].text);
      continue;
    }
    erase_option(options, varied.option, keys);
    ConfigNode& entry = options.inner.emplace_back(point.values[i]);
    entry.key = varied.option;
  }
  return options;
}

Error located(const Error& error, const Scenario& scenario, const SweepPoint* point,
              const ScenarioKeys& keys) {
  const std::string option = option_in(error, keys);
  int line = 0;
  for (const ConfigNode& entry : scenario.options.inner) {
    if (!option.empty() && option_of(entry.key, keys.options) == option) {
      line = line_of(entry, error.param);
    }
  }
  for (size_t i = 0; point != nullptr && i < point->values.size(); ++i) {
    const VariedKey& varied = scenario.vary[i];
    if (line == 0 || (!option.empty() && (varied.option == option || varied.field == option))) {
      line = point->values[i].line;
    }
  }
  std::string where = line > 0 ? fmt::format("{}:{}: ", scenario.file, line) : "";
  if (point != nullptr) {
    where += fmt::format("in the point {}: ", point->name);
  }
  return {error.code, where + error.message, error.param};
}

}  // namespace tandem::sim
