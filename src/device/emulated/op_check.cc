#include "device/emulated/op_check.h"

#include <variant>

#include "base/check.h"
#include "device/op_queries.h"

namespace tandem::device {
namespace {

bool goes_right(CopyDirection direction, StreamKind kind) {
  const bool out = direction == CopyDirection::kDeviceToHost;
  const bool in = direction == CopyDirection::kHostToDevice;
  return kind == StreamKind::kCompute || (kind == StreamKind::kDeviceToHost && out) ||
         (kind == StreamKind::kHostToDevice && in) || (kind == StreamKind::kSwap && (out || in));
}

void check_copy(const CopyOp& copy, StreamKind kind, const Tiers& tiers) {
  if (copy.bytes == 0) {
    return;
  }
  const CopyDirection direction = direction_of(copy, tiers);
  CHECK(goes_right(direction, kind),
        "a copy of {} bytes goes the wrong way ({}) for its stream (kind {})", copy.bytes,
        static_cast<int>(direction), static_cast<int>(kind));
}

void check_operand(const Op& op, const Operand& operand, const Tiers& tiers) {
  const bool absent = tiers.hollow && operand.place == Place::kWeights && operand.data == nullptr;
  const int64_t bytes = operand.bytes();
  CHECK(operand.place == Place::kAnywhere || absent || bytes <= 0 ||
            tiers.device.contains(operand.data, bytes),
        "{} {}: {} bytes at {} do not lie in device memory", label_of(op).name, operand.name, bytes,
        operand.data);
}

}  // namespace

CopyDirection direction_of(const CopyOp& copy, const Tiers& tiers) {
  const bool to_device = tiers.device.contains(copy.target, copy.bytes);
  const bool to_host = tiers.host.contains(copy.target, copy.bytes);
  CHECK(to_device || to_host, "a copy of {} bytes to {}, which lies in no tier", copy.bytes,
        copy.target);
  if (tiers.device.contains(copy.source, copy.bytes)) {
    return to_device ? CopyDirection::kDeviceToDevice : CopyDirection::kDeviceToHost;
  }
  if (tiers.host.contains(copy.source, copy.bytes)) {
    return to_device ? CopyDirection::kHostToDevice : CopyDirection::kHostToHost;
  }
  CHECK(to_device, "a copy of {} bytes from {}, which lies in no tier, to the host", copy.bytes,
        copy.source);
  return CopyDirection::kPageableToDevice;
}

void check_op(const Op& op, StreamKind kind, const Tiers& tiers) {
  if (const CopyOp* copy = copy_of(op)) {
    check_copy(*copy, kind, tiers);
    return;
  }
  CHECK(kind == StreamKind::kCompute, "op {} on a stream of copies", label_of(op).name);
  for_each_operand(op, [&](const Operand& operand) { check_operand(op, operand, tiers); });
}

}  // namespace tandem::device
