// Room for steps' inputs: pinned memory that a step is laid out in and device memory of the same
// size that it is copied to. Two steps in turn, so a step can be laid out while the device still
// reads the one before. Grows for a step that needs more than planned (long histories under
// penalties, many shared block tables). Engine thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "device/device.h"
#include "exec/batch_layout.h"
#include "exec/workspaces.h"

namespace tandem {

class StepStaging {
 public:
  explicit StepStaging(device::Device& device) : device_(device) {}
  Status allocate(int64_t bytes);

  // A place of at least `bytes` that no step in flight uses, given that at most kStagedSteps are in
  // flight. Stops the process when the memory to grow is not there.
  StagingPlace next(int64_t bytes);

 private:
  struct Room {
    std::unique_ptr<device::Memory> host;
    std::unique_ptr<device::Memory> device;
  };
  Status allocate(Room& room, int64_t bytes);

  device::Device& device_;
  std::array<Room, kStagedSteps> rooms_;
  size_t turn_ = 0;
};

}  // namespace tandem
