// What the tests of kernels share: the families to run, random data, guarded memory, errors.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace tandem::kernels {

// The kernels of a family this machine runs.
inline const Kernels& table_of(Isa isa) {
  const Result<const Kernels*> table = kernels_for(isa);
  CHECK(table.ok(), "{}", table.error().message);
  return **table;
}

// 64-byte aligned memory with guard bytes before and after; all bytes start as 0xff (NaN in fp32
// and bf16), so what a kernel forgets to write, or reads without right, shows.
template <class T>
class Guarded {
 public:
  explicit Guarded(int64_t count)
      : count_(count),
        bytes_(count * int64_t{sizeof(T)}),
        data_(static_cast<unsigned char*>(
            ::operator new (static_cast<size_t>(bytes_ + 2 * kGuard), std::align_val_t{64}))) {
    std::memset(data_.get(), 0xff, static_cast<size_t>(bytes_ + 2 * kGuard));
  }

  [[nodiscard]] T* data() { return reinterpret_cast<T*>(data_.get() + kGuard); }
  [[nodiscard]] const T* data() const { return reinterpret_cast<const T*>(data_.get() + kGuard); }
  [[nodiscard]] int64_t size() const { return count_; }
  T& operator[](int64_t i) { return data()[i]; }
  const T& operator[](int64_t i) const { return data()[i]; }

  [[nodiscard]] bool guards_intact() const {
    for (int64_t i = 0; i < kGuard; ++i) {
      if (data_.get()[i] != 0xff || data_.get()[kGuard + bytes_ + i] != 0xff) {
        return false;
      }
    }
    return true;
  }

 private:
  static constexpr int64_t kGuard = 256;
  struct Free {
    void operator()(unsigned char* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  int64_t count_;
  int64_t bytes_;
  std::unique_ptr<unsigned char, Free> data_;
};

using Random = std::mt19937_64;

inline float uniform(Random& random, float low, float high) {
  return std::uniform_real_distribution<float>(low, high)(random);
}
inline int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

// Writes `value` as element i of an array of `type`.
inline void put(void* data, ElementType type, int64_t i, float value) {
  if (type == ElementType::kF32) {
    static_cast<float*>(data)[i] = value;
  } else {
    static_cast<BFloat16*>(data)[i] = f32_to_bf16(value);
  }
}
inline float get(const void* data, ElementType type, int64_t i) {
  return type == ElementType::kF32 ? static_cast<const float*>(data)[i]
                                   : bf16_to_f32(static_cast<const BFloat16*>(data)[i]);
}

// |got - wanted| / |wanted| in the 2-norm; infinite when `got` holds a NaN.
inline double relative_error(std::span<const float> got, std::span<const double> wanted) {
  double difference = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double delta = static_cast<double>(got[i]) - wanted[i];
    if (std::isnan(delta)) {
      return std::numeric_limits<double>::infinity();
    }
    difference += delta * delta;
    norm += wanted[i] * wanted[i];
  }
  return norm == 0.0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

inline bool can_run(Isa isa) {
  for (const Isa available : available_isas()) {
    if (available == isa) {
      return true;
    }
  }
  return false;
}

}  // namespace tandem::kernels
