// Holds every pointer of an op to the arena it must lie in: ops of the compute stream touch device
// memory only, and a copy goes the way of its stream. A wrong pointer is a bug and stops the
// process with the op, the argument and the range. Called where the op is launched, so the stack
// shows whose bug it is.
#pragma once

#include "device/device.h"
#include "device/emulated/arena.h"

namespace tandem::device {

enum class CopyDirection : uint8_t {
  kDeviceToDevice,
  kDeviceToHost,
  kHostToDevice,
  kHostToHost,
  kPageableToDevice,  // from memory that the device does not own; only while loading
};

struct Tiers {
  const Arena& device;
  const Arena& host;
  bool hollow = false;  // weights need not exist
};

// By the addresses; a range in no arena, but for a source on the way to the device, is a bug.
CopyDirection direction_of(const CopyOp& copy, const Tiers& tiers);

void check_op(const Op& op, StreamKind kind, const Tiers& tiers);

}  // namespace tandem::device
