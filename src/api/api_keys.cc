#include "api/api_keys.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace tandem::api {

namespace {

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

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t begin = text.find_first_not_of(kSpace);
  return begin == std::string_view::npos
             ? std::string_view()
             : text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

}  // namespace

ApiKeys::Digest ApiKeys::digest_of(std::string_view key) {
  Digest digest{};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

void ApiKeys::replace(std::span<const std::string> keys) {
  const std::scoped_lock lock(mutex_);
  former_.insert(former_.end(), keys_.begin(), keys_.end());
  keys_.clear();
  for (const std::string& key : keys) {
    const Digest digest = digest_of(key);
    const auto same = [&](const Key& known) { return known.digest == digest; };
    if (key.empty() || std::ranges::any_of(keys_, same)) {
      continue;
    }
    const auto known = std::ranges::find_if(former_, same);
    keys_.push_back({digest, known != former_.end() ? known->number : next_number_++});
  }
  std::erase_if(former_, [&](const Key& old) {
    return std::ranges::any_of(keys_, [&](const Key& key) { return key.number == old.number; });
  });
}

bool ApiKeys::required() const { return count() > 0; }

size_t ApiKeys::count() const {
  const std::scoped_lock lock(mutex_);
  return keys_.size();
}

std::optional<int64_t> ApiKeys::match(std::string_view authorization) const {
  if (!has_bearer_scheme(authorization)) {
    return std::nullopt;
  }
  std::string_view given = authorization.substr(std::string_view("bearer ").size());
  while (given.starts_with(' ')) {
    given.remove_prefix(1);
  }
  const Digest digest = digest_of(given);
  std::optional<int64_t> found;
  const std::scoped_lock lock(mutex_);
  for (const Key& key : keys_) {
    if (CRYPTO_memcmp(digest.data(), key.digest.data(), digest.size()) == 0) {
      found = key.number;
    }
  }
  return found;
}

Result<std::vector<std::string>> read_key_file(const std::string& path) {
  constexpr size_t kMaxKeys = 10000;
  constexpr size_t kMaxKeyBytes = 4096;
  const auto broken = [&](std::string_view problem) {
    return invalid_argument(fmt::format("--api-key-file {}: {}", path, problem), "api-key-file");
  };
  std::ifstream file(path);
  if (!file) {
    return broken(fmt::format("cannot be read: {}; give a file that this user may read",
                              std::strerror(errno)));
  }
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    const std::string_view key = trimmed(line);
    if (key.empty() || key.starts_with('#')) {
      continue;
    }
    const auto plain = [](char c) { return c > ' ' && c < 0x7F; };
    if (key.size() > kMaxKeyBytes || !std::ranges::all_of(key, plain)) {
      return broken(fmt::format("key {} is not one word of at most {} printable ASCII characters",
                                keys.size() + 1, kMaxKeyBytes));
    }
    keys.emplace_back(key);
    if (keys.size() > kMaxKeys) {
      return broken(fmt::format("has more than {} keys", kMaxKeys));
    }
  }
  if (file.bad()) {
    return broken("reading it failed");
  }
  if (keys.empty()) {
    return broken("holds no key; write one a line");
  }
  return keys;
}

}  // namespace tandem::api
