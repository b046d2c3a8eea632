// The API keys that clients may use, as "Authorization: Bearer KEY". Comparing takes the same time
// whichever key is tried and however much of it is right. Threads: const and shared.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::api {

class ApiKeys {
 public:
  explicit ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {}

  [[nodiscard]] bool required() const { return !keys_.empty(); }
  [[nodiscard]] size_t count() const { return keys_.size(); }
  // The position of the key in that header's value, or nullopt.
  [[nodiscard]] std::optional<size_t> match(std::string_view authorization) const;

 private:
  std::vector<std::string> keys_;
};

}  // namespace tandem::api
