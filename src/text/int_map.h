// A hash map from 64-bit keys to pairs of 32-bit values: the inner loops of tokenizing look up in
// nothing else. Not here: erasing, iteration. Threads: find() from any thread once filled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::text {

class IntMap {
 public:
  struct Value {
    uint32_t first = 0;
    uint32_t second = 0;
  };

  static constexpr uint64_t key(uint32_t high, uint32_t low) {
    return static_cast<uint64_t>(high) << 32 | low;
  }

  // Room for `count` entries without growing.
  void reserve(size_t count) {
    size_t slots = 16;
    while (slots < 2 * count) {
      slots *= 2;
    }
    if (slots > slots_.size()) {
      grow(slots);
    }
  }

  // Replaces the value of a key that is there. The key ~0 is reserved.
  void insert(uint64_t key, Value value) {
    if (2 * (size_ + 1) > slots_.size()) {
      grow(slots_.empty() ? 16 : 2 * slots_.size());
    }
    Slot& slot = slots_[position(key)];
    if (slot.key == kEmpty) {
      slot.key = key;
      ++size_;
    }
    slot.value = value;
  }

  // nullptr if absent.
  [[nodiscard]] const Value* find(uint64_t key) const {
    if (slots_.empty()) {
      return nullptr;
    }
    const Slot& slot = slots_[position(key)];
    return slot.key == kEmpty ? nullptr : &slot.value;
  }

  [[nodiscard]] size_t size() const { return size_; }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Value value;
  };

  // Where the key is, or would go. At least half of the slots are empty, so this ends.
  [[nodiscard]] size_t position(uint64_t key) const {
    uint64_t hash = key * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 32;
    const size_t mask = slots_.size() - 1;
    size_t i = static_cast<size_t>(hash) & mask;
    while (slots_[i].key != kEmpty && slots_[i].key != key) {
      i = (i + 1) & mask;
    }
    return i;
  }

  void grow(size_t slots) {
    std::vector<Slot> old(slots);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != kEmpty) {
        slots_[position(slot.key)] = slot;
      }
    }
  }

  std::vector<Slot> slots_;  // a power of two of them
  size_t size_ = 0;
};

}  // namespace tandem::text
