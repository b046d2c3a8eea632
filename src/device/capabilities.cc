#include "device/capabilities.h"

namespace tandem::device {

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
