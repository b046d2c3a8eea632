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

  // True when the op is dense and its outputs hold finite numbers now; false when it must really
  // run: copies, routes, gathers of visitors and sampling.
  bool stand_in(const Op& op);

 private:
  struct Rows {
    void* data = nullptr;
    ElementType type = ElementType::kF32;
    int64_t rows = 0;
    int64_t stride = 0;  // in elements
    int64_t columns = 0;
  };

  bool stand_in_for(const kernels::PackArgs&) { return true; }
  bool stand_in_for(const kernels::EmbedArgs& args);
  bool stand_in_for(const kernels::RmsNormArgs& args);
  bool stand_in_for(const kernels::GemmArgs& args);
  bool stand_in_for(const kernels::RopeTableArgs& args);
  bool stand_in_for(const kernels::RopeWriteArgs& args);
  bool stand_in_for(const AttentionOp& op);
  bool stand_in_for(const kernels::RowGatherArgs& args);
  bool stand_in_for(const kernels::SampleArgs& args);
  bool stand_in_for(const kernels::RopeRouteArgs&) { return false; }
  bool stand_in_for(const kernels::TailGatherArgs&) { return false; }
  bool stand_in_for(const CopyOp&) { return false; }

  void fill(const Rows& rows);
  void write(const Rows& rows, int64_t first) const;

  std::vector<float> floats_;      // what rows are cut out of, -1 .. 1
  std::vector<BFloat16> bfloats_;  // the same numbers
  std::vector<Rows> written_;
};

}  // namespace tandem::device
