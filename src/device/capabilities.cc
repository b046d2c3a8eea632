#include "device/capabilities.h"

#include "base/check.h"

namespace tandem::device {

const char* stream_kind_name(StreamKind kind) {
  switch (kind) {
    case StreamKind::kCompute:
      return "compute";
    case StreamKind::kDeviceToHost:
      return "to host";
    case StreamKind::kHostToDevice:
      return "to device";
    case StreamKind::kSwap:
      return "swap";
  }
  CHECK(false, "stream kind {}", static_cast<int>(kind));
  return "";
}

int64_t DeviceStatistics::ops() const {
  int64_t sum = 0;
  for (const StreamStatistics& stream : streams) {
    sum += stream.ops;
  }
  return sum;
}

int64_t DeviceStatistics::overruns() const {
  int64_t sum = 0;
  for (const StreamStatistics& stream : streams) {
    sum += stream.overruns;
  }
  return sum;
}

double DeviceStatistics::overrun_share() const {
  return overruns() == 0 ? 0 : static_cast<double>(overruns()) / static_cast<double>(ops());
}

}  // namespace tandem::device
