// How the CUDA back end stores weights, activations and KV.
#pragma once

#include "device/formats.h"

namespace tandem::device::cuda {

// Weights row-major in bf16 or fp32 (kernels/products.h), activations of their type. The residual
// is in fp32, or in bf16 if `residual` says so and weights are in it. Queries are in bf16 where
// FlashInfer's kernels read them, if there are any (`flash`).
const Formats& cuda_formats(ElementType residual, bool flash);

}  // namespace tandem::device::cuda
