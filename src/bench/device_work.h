// What an op of a device must move and compute at least: the bytes and operations by which
// `tandem bench kernels --device` holds its time against the device's ceilings. Pure functions; any
// thread.
#pragma once

#include "device/ops.h"

namespace tandem::bench {

struct Work {
  double bytes = 0.0;       // read and written
  double operations = 0.0;  // of products and attention; a multiply-add is two
  friend Work operator+(const Work& a, const Work& b) {
    return {a.bytes + b.bytes, a.operations + b.operations};
  }
};

// Each operand is read or written once: weights, K and V too, however often a kernel reads them. An
// AttentionOp's slices are read from its host_slices.
Work work_of(const device::Op& op);

// The highest rates of a device, measured in the same run; 0: unknown.
struct DeviceCeilings {
  double bytes_per_second = 0.0;       // of a copy on the device, read and written
  double operations_per_second = 0.0;  // of a large bfloat16 product
};

// The shortest time for `work`: the longer of its bytes and its operations at the ceilings.
double ceiling_seconds(const Work& work, const DeviceCeilings& ceilings);

}  // namespace tandem::bench
