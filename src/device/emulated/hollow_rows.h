// What a hollow accelerator leaves where a dense op would have written: finite numbers from a seed,
// written once, because nobody looks at their values and writing them again would take longer than
// the accelerator that is played. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/element_type.h"
#include "device/device.h"

namespace tandem::device {

class HollowRows {
 public:
  explicit HollowRows(uint64_t seed);

  // True if the op is dense (OnHollow::kStandsIn): the numbers that it writes are finite now. False
  // if it must really run.
  bool stand_in(const Op& op);

 private:
  struct Numbers {
    void* data = nullptr;
    ElementType type = ElementType::kF32;
    int64_t rows = 0;
    int64_t stride = 0;  // in elements
    int64_t columns = 0;
  };

  void forget(const Operand& operand);
  void fill(const Numbers& rows);
  void write(const Numbers& rows, int64_t first) const;

  std::vector<float> floats_;      // what rows are cut out of, -1 .. 1
  std::vector<BFloat16> bfloats_;  // the same numbers
  std::vector<Numbers> written_;
};

}  // namespace tandem::device
