// Room for the inputs of steps and of their groups: pinned memory that one is laid out in and
// device memory of the same size that it is copied to. Several rooms in turn, so that one can be
// laid out while the device still reads those before. Never grows: the memory plan has room for the
// most that any step can bring (workspaces.h). Engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "exec/batch_layout.h"

namespace tandem {

class StepStaging {
 public:
  StepStaging(device::Device& device, int rooms)
      : device_(device), rooms_(static_cast<size_t>(rooms)) {}
  Status allocate(int64_t bytes);

  // A place of at least `bytes` that nothing in flight uses, given that at most as many are in
  // flight as there are rooms.
  StagingPlace next(int64_t bytes);

 private:
  struct Room {
    std::unique_ptr<device::Memory> host;
    std::unique_ptr<device::Memory> device;
  };

  device::Device& device_;
  std::vector<Room> rooms_;
  size_t turn_ = 0;
};

}  // namespace tandem
