// What an op reads or writes: the description that ops.h gives of each of its operands. Plain data;
// any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/element_type.h"

namespace tandem::device {

enum class Access : uint8_t {
  kRead,
  kWrite,    // what was there before does not matter
  kUpdate,   // read and written
  kScratch,  // read, and of no use afterwards
};

enum class Place : uint8_t {
  kDevice,
  kWeights,   // device memory too, but a device that computes nothing needs none of it
  kAnywhere,  // also memory of neither tier: a loader's source, or what only the host reads
};

// Rows of equal width, a stride apart. Empty with no rows; one row where a kernel finds its rows by
// index: then the first must be there, and moved_bytes says how much is used.
struct Operand {
  const char* name = "";
  const void* data = nullptr;
  int64_t rows = 0;
  int64_t row_bytes = 0;
  int64_t stride_bytes = 0;
  Access access = Access::kRead;
  Place place = Place::kDevice;
  std::optional<ElementType> numbers = {};  // of a result of dense arithmetic: their type
  int64_t moved_bytes = 0;                  // read or written by the op

  // From the first row's start to the last one's end.
  [[nodiscard]] int64_t bytes() const {
    return rows <= 0 ? 0 : (rows - 1) * stride_bytes + row_bytes;
  }
  [[nodiscard]] Operand moving(int64_t bytes) const {
    Operand copy = *this;
    copy.moved_bytes = bytes;
    return copy;
  }
  [[nodiscard]] Operand at(Place where) const {
    Operand copy = *this;
    copy.place = where;
    return copy;
  }
  // Absent where the pointer is null.
  [[nodiscard]] Operand optional() const {
    Operand copy = *this;
    if (data == nullptr) {
      copy.rows = 0;
      copy.moved_bytes = 0;
    }
    return copy;
  }
};

// `count` values side by side.
template <class T>
Operand array(const char* name, const T* data, int64_t count, Access access = Access::kRead) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  return {.name = name,
          .data = data,
          .rows = count > 0 ? 1 : 0,
          .row_bytes = bytes,
          .stride_bytes = bytes,
          .access = access,
          .moved_bytes = bytes};
}

inline Operand bytes_at(const char* name, const void* data, int64_t bytes, Access access) {
  return array(name, static_cast<const std::byte*>(data), bytes, access);
}

struct Rows {
  int64_t count = 0;
  int64_t stride = 0;  // in elements
  int64_t columns = 0;
};

// A matrix of an op's numbers.
inline Operand matrix(const char* name, const void* data, ElementType type, const Rows& rows,
                      Access access = Access::kRead) {
  const int64_t element = element_bytes(type);
  return {.name = name,
          .data = data,
          .rows = rows.count,
          .row_bytes = rows.columns * element,
          .stride_bytes = rows.stride * element,
          .access = access,
          .numbers = access == Access::kWrite ? std::optional(type) : std::nullopt,
          .moved_bytes = std::max<int64_t>(rows.count, 0) * rows.columns * element};
}

inline Operand floats(const char* name, const float* data, const Rows& rows,
                      Access access = Access::kRead) {
  return matrix(name, data, ElementType::kF32, rows, access);
}

}  // namespace tandem::device
