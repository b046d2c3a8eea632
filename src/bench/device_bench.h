// `tandem bench kernels --device NAME`: each op of an accelerator through the device's interface,
// held against ceilings that are measured first in the same run: a copy on the device for bytes,
// large bfloat16 products for operations.
//
// An op is launched many times in a row on one stream, and the time from the first launch until all
// have completed is divided by their number. So the time of a short op is what launching it costs.
// Medians of several such timings. Prints a row as soon as it is measured; the file of --json is
// whole after each row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/open/open.h"

namespace tandem::bench {

enum class DeviceBenchSizes : uint8_t { kAll, kQuick, kTiny };

struct DeviceBenchOptions {
  device::AcceleratorSpec accelerator;
  int64_t device_memory_bytes = 0;                  // 0: 10 GiB, of tiny sizes 96 MiB
  std::vector<std::string> shapes = {"8B", "34B"};  // presets of `tandem model make`
  DeviceBenchSizes sizes = DeviceBenchSizes::kAll;
  std::vector<int64_t> rows;  // rows of the products; empty: by `sizes`
  int32_t passes = 5;
  double limit_seconds = 0;  // nothing more is measured after it; 0: no limit
  std::string only;          // rows whose op's name holds this; empty: all
  std::string json_path;     // empty: none
};

// Prints; returns the process's exit code.
int bench_device(const DeviceBenchOptions& options);

}  // namespace tandem::bench
