// Reading a scenario file.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "cli/arguments.h"
#include "sim/scenario.h"
#include "sim/scenario_errors.h"

namespace tandem::sim {
namespace {

using cli::ConfigNode;
using Kind = ConfigNode::Kind;

constexpr std::string_view kVary = "vary";
constexpr std::string_view kStream = "stream";
constexpr std::string_view kHost = "host";
constexpr std::string_view kEngine = "engine";
constexpr size_t kMaxPoints = 10'000;
constexpr std::string_view kExample = "for example vary: {policy: [sarathi, omniserve]}";
// They say where a scenario is and how it is run, not what is simulated.
constexpr std::array kNotVaried = {"config", "out", "jobs", "help", "log-level", "log-format"};

std::string with_article(std::string_view option) {
  return fmt::format("{} {}", option == kEngine ? "an" : "a", option);
}

Result<std::string> spec_text(const ConfigNode& map, std::string_view option,
                              const std::string& file);

// A host in the map of an engine, as "kv=95GiB,gbps=150": there a ; sets keys of the engine apart.
Result<ConfigNode> inner_host(const ConfigNode& host, const std::string& file) {
  ASSIGN_OR_RETURN(std::string text, spec_text(host, kHost, file));
  if (text.find(',') != std::string::npos) {
    return error_at(file, host.line,
                    "a host of an engine holds a comma, which sets keys apart; leave it out");
  }
  std::ranges::replace(text, ';', ',');
  return ConfigNode{
      .key = {}, .kind = Kind::kText, .text = std::move(text), .inner = {}, .line = host.line};
}

// {name: chat, goodput: [ttft:500, tpot:50]} as "name=chat;goodput=ttft:500;goodput=tpot:50".
Result<std::string> spec_text(const ConfigNode& map, std::string_view option,
                              const std::string& file) {
  std::string text;
  for (const ConfigNode& entry : map.inner) {
    const bool is_list = entry.kind == Kind::kList;
    for (ConfigNode value : is_list ? entry.inner : std::vector<ConfigNode>(1, entry)) {
      if (value.kind == Kind::kMap && option == kEngine && entry.key == kHost) {
        ASSIGN_OR_RETURN(value, inner_host(value, file));
      }
      if (value.kind != Kind::kText) {
        return error_at(file, entry.line,
                        fmt::format("the key '{}' of {} takes a text, a number or a list of "
                                    "them",
                                    entry.key, with_article(option)));
      }
      if ((entry.key + value.text).find(';') != std::string::npos ||
          entry.key.find('=') != std::string::npos) {
        return error_at(
            file, entry.line,
            fmt::format("the key '{}' of {} or its value holds a ; or =, which set keys "
                        "apart; leave it out",
                        entry.key, with_article(option)));
      }
      text += fmt::format("{}{}={}", text.empty() ? "" : ";", entry.key, value.text);
    }
  }
  return text;
}

// Streams, hosts and engines written as maps become the texts that --stream and so on take.
Status flatten_maps(ConfigNode& entry, const std::string& file) {
  if (entry.kind == Kind::kMap) {
    entry.inner = {ConfigNode(entry)};
    entry.kind = Kind::kList;
  }
  for (ConfigNode& item : entry.inner) {
    if (item.kind == Kind::kMap) {
      ASSIGN_OR_RETURN(std::string text, spec_text(item, entry.key, file));
      item = {
          .key = {}, .kind = Kind::kText, .text = std::move(text), .inner = {}, .line = item.line};
    }
  }
  return {};
}

// Equal numbers are equal however they are written.
bool same_value(const std::string& a, const std::string& b) {
  double x = 0;
  double y = 0;
  const auto is_number = [](const std::string& text, double& number) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    return error == std::errc{} && stop == end;
  };
  return a == b || (is_number(a, x) && is_number(b, y) && x == y);
}

Status read_values(const ConfigNode& node, const std::string& file, VariedKey& varied) {
  if (node.kind != Kind::kList) {
    return error_at(file, node.line,
                    fmt::format("vary: '{0}' needs a list of values; write {0}: [A, B]", node.key));
  }
  if (node.inner.empty()) {
    return error_at(file, node.line,
                    fmt::format("vary: the list of '{}' is empty; write its values or leave the "
                                "key out",
                                node.key));
  }
  for (const ConfigNode& value : node.inner) {
    if (value.kind != Kind::kText) {
      return error_at(file, value.line,
                      fmt::format("vary: a value of '{}' is a list, a map or nothing; write a text "
                                  "or a number",
                                  node.key));
    }
    for (const ConfigNode& before : varied.values) {
      if (same_value(before.text, value.text)) {
        return error_at(file, value.line,
                        fmt::format("vary: '{}' has the value {} twice, which would run the same "
                                    "point again; leave one out",
                                    node.key, value.text));
      }
    }
    varied.values.push_back(value);
  }
  return {};
}

// "stream.chat.request-rate", "engine.gpu.policy"; names may hold dots, keys do not.
Status read_member_key(const ConfigNode& node, const std::string& file, const ScenarioKeys& keys,
                       VariedKey& varied) {
  varied.option = node.key.substr(0, node.key.find('.'));
  const bool is_engine = varied.option == kEngine;
  const cli::Command known = is_engine ? keys.engine : keys.stream;
  const size_t first = node.key.find('.');
  const size_t last = node.key.rfind('.');
  if (first == last || last + 1 == node.key.size()) {
    return error_at(file, node.line,
                    fmt::format("vary: '{}' names no key of {}; write {}.NAME.KEY, for example {}",
                                node.key, with_article(varied.option), varied.option,
                                is_engine ? "engine.gpu.policy" : "stream.chat.request-rate"));
  }
  varied.member = node.key.substr(first + 1, last - first - 1);
  varied.field = option_of(node.key.substr(last + 1), known);
  if (varied.field == "name") {
    return error_at(file, node.line,
                    fmt::format("vary: the name of {} says which one is meant and cannot be "
                                "varied; leave it out",
                                with_article(varied.option)));
  }
  if (varied.field.empty() || varied.field == "help") {
    const std::string key = node.key.substr(last + 1);
    return error_at(file, node.line,
                    fmt::format("vary: unknown key '{}' of {}{}", key, with_article(varied.option),
                                cli::nearest_key(key, known)));
  }
  return {};
}

Result<VariedKey> read_varied(const ConfigNode& node, const std::string& file,
                              const ScenarioKeys& keys) {
  VariedKey varied{
      .key = node.key, .option = {}, .member = {}, .field = {}, .line = node.line, .values = {}};
  if (node.key.starts_with("stream.") || node.key.starts_with("engine.")) {
    RETURN_IF_ERROR(read_member_key(node, file, keys, varied));
  } else {
    varied.option = option_of(node.key, keys.options);
    if (varied.option.empty()) {
      return error_at(file, node.line,
                      fmt::format("vary: unknown key '{}'{}", node.key,
                                  cli::nearest_key(node.key, keys.options)));
    }
    if (std::ranges::count(kNotVaried, varied.option) > 0) {
      return error_at(file, node.line,
                      fmt::format("vary: '{}' changes nothing that is simulated and cannot be "
                                  "varied; leave it out",
                                  node.key));
    }
  }
  RETURN_IF_ERROR(read_values(node, file, varied));
  return varied;
}

Result<std::vector<VariedKey>> read_vary(const ConfigNode& node, const std::string& file,
                                         const ScenarioKeys& keys) {
  if (node.kind != Kind::kMap || node.inner.empty()) {
    const bool is_empty = node.inner.empty() && node.kind != Kind::kText;
    return error_at(
        file, node.line,
        fmt::format("vary: {}; give one or two keys with the values of each, {}",
                    is_empty ? "it names nothing to vary" : "it is not a map", kExample));
  }
  constexpr size_t kMaxKeys = 2;
  if (node.inner.size() > kMaxKeys) {
    return error_at(file, node.line,
                    fmt::format("vary: {} keys are more than two; leave some out, or make a sweep "
                                "for each value of the others",
                                node.inner.size()));
  }
  std::vector<VariedKey> vary;
  size_t points = 1;
  for (const ConfigNode& entry : node.inner) {
    ASSIGN_OR_RETURN(VariedKey varied, read_varied(entry, file, keys));
    for (const VariedKey& before : vary) {
      if (before.option == varied.option && before.field == varied.field &&
          before.member == varied.member) {
        return error_at(
            file, varied.line,
            fmt::format("vary: '{}' and '{}' (line {}) are the same option; leave one out",
                        varied.key, before.key, before.line));
      }
      if (before.option == varied.option && before.field.empty() != varied.field.empty()) {
        return error_at(file, varied.line,
                        fmt::format("vary: all {}s and a key of one cannot both be varied; leave "
                                    "one out",
                                    varied.option));
      }
    }
    points *= varied.values.size();
    vary.push_back(std::move(varied));
  }
  if (points > kMaxPoints) {
    return error_at(
        file, node.line,
        fmt::format("vary: {} points are more than {}; leave values out", points, kMaxPoints));
  }
  return vary;
}

Status check_keys(const Scenario& scenario, const ScenarioKeys& keys) {
  std::vector<std::pair<std::string, const ConfigNode*>> seen;
  for (const ConfigNode& entry : scenario.options.inner) {
    const std::string option = option_of(entry.key, keys.options);
    if (option == "config") {
      return error_at(scenario.file, entry.line,
                      "a scenario cannot name another one; leave the key 'config' out");
    }
    const auto before = std::ranges::find(seen, option, [](const auto& one) { return one.first; });
    if (!option.empty() && before != seen.end()) {
      return error_at(scenario.file, entry.line,
                      fmt::format("the key '{}' stands in line {} already; leave one out",
                                  entry.key, before->second->line));
    }
    seen.emplace_back(option, &entry);
  }
  const Result<std::vector<std::string>> flags =
      cli::config_flags(scenario.options, scenario.file, keys.options);
  return flags.ok() ? Status{} : flags.error();
}

}  // namespace

Result<Scenario> parse_scenario(const std::string& text, const std::string& file,
                                const ScenarioKeys& keys) {
  ASSIGN_OR_RETURN(ConfigNode root, cli::parse_config(text, file));
  Scenario scenario{.file = file, .options = {}, .vary = {}};
  scenario.options.kind = Kind::kMap;
  const ConfigNode* vary = nullptr;
  for (ConfigNode& entry : root.inner) {
    if (entry.key == kVary) {
      if (vary != nullptr) {
        return error_at(
            file, entry.line,
            fmt::format("vary: it stands in line {} already; leave one out", vary->line));
      }
      vary = &entry;
      continue;
    }
    if (entry.key == kStream || entry.key == kHost || entry.key == kEngine) {
      RETURN_IF_ERROR(flatten_maps(entry, file));
    }
    scenario.options.inner.push_back(entry);
  }
  RETURN_IF_ERROR(check_keys(scenario, keys));
  if (vary != nullptr) {
    ASSIGN_OR_RETURN(scenario.vary, read_vary(*vary, file, keys));
  }
  return scenario;
}

Result<Scenario> read_scenario(const std::string& file, const ScenarioKeys& keys) {
  ASSIGN_OR_RETURN(const std::string text, cli::read_config_text(file));
  return parse_scenario(text, file, keys);
}

}  // namespace tandem::sim
