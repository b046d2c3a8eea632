#include "api/api_keys.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <iterator>

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

}  // namespace

ApiKeys::Digest ApiKeys::digest_of(std::string_view key) {
  Digest digest{};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

std::string tenant_of(const KeyMatch& key) { return fmt::format("key{}", key.number); }

// Half of a digest of the digest: what it is kept beside tells nothing of the key.
std::string ApiKeys::owner_of(const Digest& digest) {
  const Digest again = digest_of({reinterpret_cast<const char*>(digest.data()), digest.size()});
  std::string owner = "key-";
  for (size_t i = 0; i < again.size() / 2; ++i) {
    owner += fmt::format("{:02x}", again[i]);
  }
  return owner;
}

void ApiKeys::replace(std::span<const ApiKey> keys) {
  const std::scoped_lock lock(mutex_);
  former_.insert(former_.end(), keys_.begin(), keys_.end());
  keys_.clear();
  for (const ApiKey& key : keys) {
    const Digest digest = digest_of(key.key);
    const auto same = [&](const Key& known) { return known.digest == digest; };
    if (key.key.empty() || std::ranges::any_of(keys_, same)) {
      continue;
    }
    const auto known = std::ranges::find_if(former_, same);
    keys_.push_back({digest,
                     {.number = known != former_.end() ? known->match.number : next_number_++,
                      .grant = key.grant,
                      .owner = owner_of(digest)}});
  }
  std::erase_if(former_, [&](const Key& old) {
    return std::ranges::any_of(
        keys_, [&](const Key& key) { return key.match.number == old.match.number; });
  });
  // A key that is forgotten and comes back gets a new number: its prefixes are computed anew.
  if (std::ssize(former_) > kMaxFormer) {
    former_.erase(former_.begin(), former_.end() - kMaxFormer);
  }
}

bool ApiKeys::required() const { return count() > 0; }

size_t ApiKeys::count() const {
  const std::scoped_lock lock(mutex_);
  return keys_.size();
}

std::optional<KeyMatch> ApiKeys::match(std::string_view authorization) const {
  if (!has_bearer_scheme(authorization)) {
    return std::nullopt;
  }
  std::string_view given = authorization.substr(std::string_view("bearer ").size());
  while (given.starts_with(' ')) {
    given.remove_prefix(1);
  }
  const Digest digest = digest_of(given);
  const Key* found = nullptr;
  const std::scoped_lock lock(mutex_);
  for (const Key& key : keys_) {
    if (CRYPTO_memcmp(digest.data(), key.digest.data(), digest.size()) == 0) {
      found = &key;
    }
  }
  return found == nullptr ? std::nullopt : std::optional(found->match);
}

std::optional<KeyMatch> ApiKeys::match_owner(std::string_view owner) const {
  const std::scoped_lock lock(mutex_);
  const auto found =
      std::ranges::find_if(keys_, [owner](const Key& key) { return key.match.owner == owner; });
  return found == keys_.end() ? std::nullopt : std::optional(found->match);
}

}  // namespace tandem::api
