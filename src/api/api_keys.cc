#include "api/api_keys.h"

#include <cstdint>

namespace tandem::api {

namespace {

// Looks at every byte of `given` whatever the key is; only the length of `given`, which the client
// knows, shows.
bool equal_in_constant_time(std::string_view given, std::string_view key) {
  size_t difference = given.size() ^ key.size();
  for (size_t i = 0; i < given.size(); ++i) {
    const char expected = key.empty() ? '\0' : key[i % key.size()];
    difference |= static_cast<uint8_t>(given[i]) ^ static_cast<uint8_t>(expected);
  }
  return difference == 0;
}

bool has_bearer_scheme(std::string_view value) {
  constexpr std::string_view kScheme = "bearer ";
  if (value.size() < kScheme.size()) {
    return false;
  }
  for (size_t i = 0; i < kScheme.size(); ++i) {
    const char c = value[i];
    if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != kScheme[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<size_t> ApiKeys::match(std::string_view authorization) const {
  if (!has_bearer_scheme(authorization)) {
    return std::nullopt;
  }
  std::string_view given = authorization.substr(std::string_view("bearer ").size());
  while (given.starts_with(' ')) {
    given.remove_prefix(1);
  }
  std::optional<size_t> found;
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (equal_in_constant_time(given, keys_[i]) && !keys_[i].empty()) {
      found = i;
    }
  }
  return found;
}

}  // namespace tandem::api
