#include "api/key_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

namespace tandem::api {

namespace {

constexpr size_t kMaxFileBytes = size_t{64} << 20;
constexpr size_t kMaxKeys = 10000;
constexpr size_t kMaxKeyBytes = 4096;
constexpr std::string_view kSpace = " \t\r";

// What a setting takes, for its error; nullopt: it was read.
using Fault = std::optional<std::string_view>;

Fault set_class(std::string_view value, ServiceGrant& grant) {
  const Result<ServiceClass> parsed = parse_service_class(value);
  if (!parsed.ok()) {
    return "takes latency_sensitive (or priority) or best_effort (or flex)";
  }
  grant.service_class = *parsed;
  return std::nullopt;
}

Fault set_best_class(std::string_view value, ServiceGrant& grant) {
  const Result<ServiceClass> parsed = parse_service_class(value);
  if (!parsed.ok()) {
    return "takes latency_sensitive (or priority) or best_effort (or flex)";
  }
  grant.best_class = *parsed;
  return std::nullopt;
}

std::optional<int32_t> level_of(std::string_view value) {
  int32_t level = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), level);
  return error == std::errc() && end == value.data() + value.size() ? std::optional(level)
                                                                    : std::nullopt;
}

Fault set_level(std::string_view value, ServiceGrant& grant) {
  grant.level = level_of(value);
  return grant.level ? Fault() : "takes a whole number; lower goes first";
}

Fault set_least_level(std::string_view value, ServiceGrant& grant) {
  const std::optional<int32_t> level = level_of(value);
  grant.least_level = level.value_or(0);
  return level ? Fault() : "takes a whole number; lower goes first";
}

Fault set_rule(std::string_view value, std::optional<TtftRule>& rule) {
  const Result<TtftRule> parsed = parse_ttft_rule(value);
  if (!parsed.ok()) {
    return "takes a rule such as 500ms or 500ms+2ms/tok,max=8s";
  }
  rule = *parsed;
  return std::nullopt;
}

Fault set_target(std::string_view value, std::optional<Nanos>& target) {
  const Result<Nanos> parsed = parse_target(value);
  if (!parsed.ok()) {
    return "takes a duration such as 50ms, over 0 and at most 24 h";
  }
  target = *parsed;
  return std::nullopt;
}

Fault set_ttft(std::string_view value, ServiceGrant& grant) {
  return set_rule(value, grant.slo.ttft);
}
Fault set_tpot(std::string_view value, ServiceGrant& grant) {
  return set_target(value, grant.slo.tpot);
}
Fault set_least_ttft(std::string_view value, ServiceGrant& grant) {
  return set_rule(value, grant.least_ttft);
}
Fault set_least_tpot(std::string_view value, ServiceGrant& grant) {
  return set_target(value, grant.least_tpot);
}

struct Setting {
  std::string_view name;
  Fault (*set)(std::string_view value, ServiceGrant& grant);
};
// What is given, then what may be claimed at most.
constexpr std::array<Setting, 8> kSettings = {{{"class", set_class},
                                               {"level", set_level},
                                               {"ttft", set_ttft},
                                               {"tpot", set_tpot},
                                               {"max-class", set_best_class},
                                               {"min-level", set_least_level},
                                               {"min-ttft", set_least_ttft},
                                               {"min-tpot", set_least_tpot}}};
constexpr size_t kGiven = 4;

std::span<const Setting> settings_of(GrantOf what) {
  return std::span(kSettings).first(what == GrantOf::kKey ? kSettings.size() : kGiven);
}

std::string_view noun(GrantOf what) { return what == GrantOf::kKey ? "a key" : "an objective"; }

// No more of them than can be right and one that makes it wrong.
std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (words.size() < kSettings.size() + 2) {
    line.remove_prefix(std::min(line.find_first_not_of(kSpace), line.size()));
    if (line.empty()) {
      break;
    }
    const size_t end = std::min(line.find_first_of(kSpace), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
  return words;
}

std::string setting_names(std::span<const Setting> settings) {
  std::vector<std::string_view> names;
  for (const Setting& setting : settings) {
    names.push_back(setting.name);
  }
  return fmt::format("{}=", fmt::join(names, "=, "));
}

// An error's message does not show the word: it may be part of a key.
Result<ServiceGrant> parse_grant(const std::vector<std::string_view>& words, GrantOf what) {
  const std::span<const Setting> settings = settings_of(what);
  ServiceGrant grant;
  std::vector<std::string_view> seen;
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string_view name = words[i].substr(0, equals);
    const auto setting = std::ranges::find(settings, name, &Setting::name);
    if (equals == std::string_view::npos || setting == settings.end()) {
      return invalid_argument(
          fmt::format("word {} is not a setting of {}; {} is one word, and behind it may stand {}",
                      i + 1, noun(what), noun(what), setting_names(settings)));
    }
    if (std::ranges::find(seen, name) != seen.end()) {
      return invalid_argument(fmt::format("{} stands there twice", name));
    }
    seen.push_back(name);
    if (const Fault fault = setting->set(words[i].substr(equals + 1), grant)) {
      return invalid_argument(fmt::format("{} {}", name, *fault));
    }
  }
  if (grant.best_class == ServiceClass::kBestEffort &&
      grant.service_class == ServiceClass::kLatencySensitive) {
    return invalid_argument("class is better than max-class; make them agree");
  }
  if (grant.level && *grant.level < grant.least_level) {
    return invalid_argument("level is below min-level; make them agree");
  }
  if (grant.slo.tpot && grant.least_tpot && *grant.slo.tpot < *grant.least_tpot) {
    return invalid_argument("tpot is below min-tpot; make them agree");
  }
  return grant;
}

bool is_key(std::string_view word) {
  return word.size() <= kMaxKeyBytes &&
         std::ranges::all_of(word, [](char c) { return c > ' ' && c < 0x7F; });
}

}  // namespace

Result<NamedGrant> parse_named_grant(std::string_view line, GrantOf what) {
  const std::vector<std::string_view> words = words_of(line);
  if (words.empty() || words.front().starts_with('#')) {
    return NamedGrant{};
  }
  if (!is_key(words.front())) {
    return invalid_argument(fmt::format("{} is one word of at most {} printable ASCII characters",
                                        noun(what), kMaxKeyBytes));
  }
  ASSIGN_OR_RETURN(const ServiceGrant grant, parse_grant(words, what));
  return NamedGrant{.name = std::string(words.front()), .grant = grant};
}

Result<std::vector<ApiKey>> parse_key_file(std::string_view text, std::string_view path) {
  const auto broken = [&](std::string_view problem) {
    return invalid_argument(fmt::format("--api-key-file {}: {}", path, problem), "api-key-file");
  };
  std::vector<ApiKey> keys;
  struct Place {
    size_t index;
    size_t line;
  };
  std::unordered_map<std::string, Place> places;
  for (size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    Result<NamedGrant> named = parse_named_grant(line, GrantOf::kKey);
    if (!named.ok()) {
      return broken(fmt::format("line {}: {}", number, named.error().message));
    }
    if (named->name.empty()) {
      continue;
    }
    const auto [known, is_new] = places.emplace(named->name, Place{keys.size(), number});
    if (is_new) {
      keys.push_back({.key = std::move(named->name), .grant = named->grant});
    } else if (keys[known->second.index].grant != named->grant) {
      return broken(fmt::format("lines {} and {} give the same key other settings; keep one",
                                known->second.line, number));
    }
    if (keys.size() > kMaxKeys) {
      return broken(fmt::format("has more than {} keys", kMaxKeys));
    }
  }
  if (keys.empty()) {
    return broken("holds no key; write one a line");
  }
  return keys;
}

Result<std::vector<ApiKey>> read_key_file(const std::string& path) {
  const auto broken = [&](std::string_view problem) {
    return invalid_argument(fmt::format("--api-key-file {}: {}", path, problem), "api-key-file");
  };
  std::ifstream file(path);
  if (!file) {
    return broken(fmt::format("cannot be read: {}; give a file that this user may read",
                              std::strerror(errno)));
  }
  std::string text;
  std::array<char, 1 << 16> piece{};
  while (file.read(piece.data(), piece.size()) || file.gcount() > 0) {
    text.append(piece.data(), static_cast<size_t>(file.gcount()));
    if (text.size() > kMaxFileBytes) {
      return broken(fmt::format("is larger than {} bytes", kMaxFileBytes));
    }
  }
  if (file.bad()) {
    return broken("reading it failed");
  }
  return parse_key_file(text, path);
}

Result<std::vector<ApiKey>> read_keys(const KeySources& sources) {
  std::vector<ApiKey> keys;
  if (!sources.file.empty()) {
    ASSIGN_OR_RETURN(keys, read_key_file(sources.file));
  }
  for (const std::string& key : sources.given) {
    keys.push_back({.key = key});
  }
  return keys;
}

}  // namespace tandem::api
