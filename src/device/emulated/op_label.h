// What an op is called in a timeline, and how large it is. Any thread.
#pragma once

#include <cstdint>

#include "device/device.h"

namespace tandem::device {

struct OpLabel {
  const char* name = "";
  const char* detail = nullptr;  // what `value` counts
  int64_t value = 0;
};

OpLabel label_of(const Op& op);

}  // namespace tandem::device
