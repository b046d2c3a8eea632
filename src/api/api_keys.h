// The API keys that clients may use, as "Authorization: Bearer KEY". Kept as SHA-256 digests only
// and compared in constant time: how long it takes tells nothing about which key was tried, how
// much of it is right, or how long the keys are. Threads: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "request/service.h"

namespace tandem::api {

struct ApiKey {
  std::string key;
  ServiceGrant grant{};
};

struct KeyMatch {
  int64_t number = 0;  // the same for as long as the process lives
  ServiceGrant grant;
  std::string owner;  // of the key's files and batches: the same for as long as the key is used
};

// Under which name the engine keeps the prefixes of the key's requests apart.
[[nodiscard]] std::string tenant_of(const KeyMatch& key);

class ApiKeys {
 public:
  explicit ApiKeys(std::span<const ApiKey> keys) { replace(keys); }

  // From now on these are the keys. A key that was known before keeps its number, unless
  // kMaxFormer others were replaced since.
  static constexpr ptrdiff_t kMaxFormer = 4096;
  void replace(std::span<const ApiKey> keys);
  [[nodiscard]] bool required() const;
  [[nodiscard]] size_t count() const;
  // The key in that header's value; nullopt: no key of ours.
  [[nodiscard]] std::optional<KeyMatch> match(std::string_view authorization) const;
  // The key of these files and batches.
  [[nodiscard]] std::optional<KeyMatch> match_owner(std::string_view owner) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  struct Key {
    Digest digest;
    KeyMatch match;
  };
  static Digest digest_of(std::string_view key);
  static std::string owner_of(const Digest& digest);

  mutable std::mutex mutex_;  // guards what follows
  std::vector<Key> keys_;
  std::vector<Key> former_;  // replaced ones, whose numbers are not given to others
  int64_t next_number_ = 0;
};

}  // namespace tandem::api
