// The formats of the CPU kernels, which the cpu device and the emulated accelerator compute with:
// weights in panels of 32 columns, bf16, fp32 or quantised, gate and up in alternating panels, KV
// as kernels/kv_layout.h says. Any thread.
#pragma once

#include "device/formats.h"
#include "device/ops.h"
#include "kernels/gemm.h"

namespace tandem::device {

const Formats& host_formats();

// The matrix as the kernels take it.
kernels::PackedMatrix packed(const WeightMatrix& matrix);
// An upload as packing.
kernels::PackArgs pack_args(const UploadOp& upload);

}  // namespace tandem::device
