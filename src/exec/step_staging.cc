#include "exec/step_staging.h"

#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/units.h"

namespace tandem {

Status StepStaging::allocate(int64_t bytes) {
  for (Room& room : rooms_) {
    RETURN_IF_ERROR(allocate(room, bytes));
  }
  return {};
}

Status StepStaging::allocate(Room& room, int64_t bytes) {
  ASSIGN_OR_RETURN(room.host, device_.allocate(device::MemoryKind::kHostPinned, bytes));
  ASSIGN_OR_RETURN(room.device, device_.allocate(device::MemoryKind::kDevice, bytes));
  return {};
}

StagingPlace StepStaging::next(int64_t bytes) {
  Room& room = rooms_[turn_];
  turn_ = (turn_ + 1) % rooms_.size();
  if (bytes > room.host->bytes()) {
    constexpr int64_t kGrowth = 2;  // so that a history that grows token by token grows this seldom
    log::info("step inputs grow from {} to {}", format_bytes(room.host->bytes()),
              format_bytes(bytes * kGrowth));
    const Status grown = allocate(room, bytes * kGrowth);
    CHECK(grown.ok(), "a step's input of {} bytes: {}", bytes, grown.error().message);
  }
  return {room.host->data(), room.device->data()};
}

}  // namespace tandem
