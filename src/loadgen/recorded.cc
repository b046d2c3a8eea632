#include "loadgen/recorded.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>

namespace tandem::loadgen {

namespace {

constexpr std::string_view kHidden = "...";

// "accessToken", "X-Api-Key" and "api_key" as "access token", "x api key", "api key".
std::string words_of(std::string_view name) {
  std::string words;
  char before = '\0';
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    const bool begins_word =
        std::isupper(byte) != 0 && std::islower(static_cast<unsigned char>(before)) != 0;
    if (begins_word || std::isalnum(byte) == 0) {
      words += ' ';
    }
    if (std::isalnum(byte) != 0) {
      words += static_cast<char>(std::tolower(byte));
    }
    before = c;
  }
  return words;
}

bool is_secret(std::string_view name) {
  constexpr std::array<std::string_view, 20> kTokenWords = {
      "key",       "keys",          "apikey",     "secret",      "secrets", "password", "passwd",
      "pass",      "pwd",           "passphrase", "auth",        "bearer",  "cookie",   "session",
      "signature", "authorization", "credential", "credentials", "salt",    "sig"};
  const std::string words = " " + words_of(name) + " ";
  // "access_token" is one, "stop_token_ids" is none.
  return words.ends_with(" token ") ||
         std::ranges::any_of(kTokenWords, [&words](std::string_view word) {
           return words.find(fmt::format(" {} ", word)) != std::string::npos;
         });
}

void hide_members(nlohmann::ordered_json& json) {
  if (!json.is_structured()) {
    return;
  }
  for (const auto& [name, value] : json.items()) {
    if (json.is_object() && is_secret(name) && !value.is_null()) {
      value = kHidden;
    } else {
      hide_members(value);
    }
  }
}

std::string without_members(std::string_view text) {
  nlohmann::ordered_json json =
      nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return std::string(kHidden);  // not to be looked into
  }
  hide_members(json);
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// "Name: value": the name is no secret.
std::string without_value(std::string_view header) {
  const size_t colon = header.find(':');
  return colon == header.npos ? std::string(kHidden)
                              : fmt::format("{}: {}", header.substr(0, colon), kHidden);
}

// "key=value;key=value", each key a flag.
std::string without_credentials(std::string_view stream) {
  std::string out;
  while (!stream.empty()) {
    const size_t end = std::min(stream.find(';'), stream.size());
    const std::string_view item = stream.substr(0, end);
    const size_t equals = item.find('=');
    out += equals == item.npos
               ? std::string(item)
               : fmt::format("{}={}", item.substr(0, equals),
                             recorded_value(item.substr(0, equals), item.substr(equals + 1)));
    out += end < stream.size() ? ";" : "";
    stream.remove_prefix(std::min(end + 1, stream.size()));
  }
  return out;
}

// As a shell reads it back.
std::string in_quotes(std::string_view argument) {
  constexpr std::string_view kPlain = "-_./:=,+@%";
  const bool plain = !argument.empty() && std::ranges::all_of(argument, [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != kPlain.npos;
  });
  if (plain) {
    return std::string(argument);
  }
  std::string out = "'";
  for (const char c : argument) {
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out + "'";
}

}  // namespace

std::string without_user(std::string_view url) {
  const size_t begin = url.find("//");
  const size_t at = url.rfind('@');  // the last: a password may hold some itself
  return begin == url.npos || at == url.npos || at < begin + 2
             ? std::string(url)
             : fmt::format("{}//{}{}", url.substr(0, begin), kHidden, url.substr(at));
}

std::string without_secrets(std::string text, std::string_view headers) {
  constexpr size_t kShortestSecret = 6;  // anything shorter stands in other words, too
  const auto hide = [&text](std::string_view secret) {
    if (secret.size() < kShortestSecret) {
      return;
    }
    for (size_t at = text.find(secret); at != text.npos; at = text.find(secret, at)) {
      text.replace(at, secret.size(), kHidden);
    }
  };
  while (!headers.empty()) {
    const size_t end = std::min(headers.find("\r\n"), headers.size());
    const std::string_view line = headers.substr(0, end);
    const size_t colon = line.find(": ");
    if (colon != line.npos && is_secret(line.substr(0, colon))) {
      const std::string_view value = line.substr(colon + 2);
      hide(value);
      hide(value.substr(value.find(' ') + 1));
    }
    headers.remove_prefix(std::min(end + 2, headers.size()));
  }
  return text;
}

std::string recorded_value(std::string_view flag, std::string_view value) {
  if (flag == "api-key") {
    return std::string(kHidden);
  }
  if (flag == "header") {
    return without_value(value);
  }
  if (flag == "extra-body") {
    return value.empty() ? std::string() : without_members(value);
  }
  if (flag == "stream") {
    return without_credentials(value);
  }
  return without_user(value);
}

std::string recorded_command(const std::vector<std::string>& arguments) {
  std::string command;
  std::string flag;  // whose values are read
  for (const std::string& argument : arguments) {
    std::string shown;
    if (argument.starts_with("--")) {
      const size_t equals = argument.find('=');
      flag = argument.substr(2, equals == argument.npos ? equals : equals - 2);
      shown = argument.substr(0, equals);
      if (equals != argument.npos) {
        shown += "=" + recorded_value(flag, std::string_view(argument).substr(equals + 1));
      }
    } else {
      shown = recorded_value(flag, argument);
    }
    command += (command.empty() ? "" : " ") + in_quotes(shown);
  }
  return command;
}

}  // namespace tandem::loadgen
