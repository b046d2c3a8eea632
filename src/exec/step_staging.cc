#include "exec/step_staging.h"

#include "base/check.h"

namespace tandem {

Status StepStaging::allocate(int64_t bytes) {
  for (Room& room : rooms_) {
    ASSIGN_OR_RETURN(room.host, device_.allocate(device::MemoryKind::kHostPinned, bytes));
    ASSIGN_OR_RETURN(room.device, device_.allocate(device::MemoryKind::kDevice, bytes));
  }
  return {};
}

StagingPlace StepStaging::next(int64_t bytes) {
  Room& room = rooms_[turn_];
  turn_ = (turn_ + 1) % rooms_.size();
  CHECK(bytes <= room.host->bytes(), "a step's input of {} bytes, {} are planned", bytes,
        room.host->bytes());
  return {room.host->data(), room.device->data()};
}

}  // namespace tandem
