// What each token adds to a decoded text, in one block of memory, and which tokens are special.
// Threads: const and shared once filled.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace tandem::text {

class TokenBytes {
 public:
  // Tokens are added in the order of their ids, holes as "".
  void add(std::string_view bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    ends_.push_back(bytes_.size());
    special_.push_back(false);
  }
  // Needs an id that was added.
  void set_special(TokenId id) { special_[static_cast<size_t>(id)] = true; }

  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(ends_.size()); }
  [[nodiscard]] std::string_view operator[](TokenId id) const {
    if (id < 0 || id >= size()) {
      return {};
    }
    const auto index = static_cast<size_t>(id);
    const size_t begin = index == 0 ? 0 : ends_[index - 1];
    return {bytes_.data() + begin, ends_[index] - begin};
  }
  [[nodiscard]] bool is_special(TokenId id) const {
    return id >= 0 && id < size() && special_[static_cast<size_t>(id)];
  }

 private:
  std::vector<char> bytes_;
  std::vector<size_t> ends_;  // by id
  std::vector<bool> special_;
};

}  // namespace tandem::text
