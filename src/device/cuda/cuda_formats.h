// How the CUDA back end stores weights, activations and KV.
#pragma once

#include "device/formats.h"

namespace tandem::device::cuda {

// Weights row-major in bf16 or fp32 (kernels/products.h), activations of their type. The residual
// is in fp32, or in bf16 if `residual` says so and weights are in it. KV has the host's arrangement
// as long as the plain kernels read it, so a change of tier is a copy.
const Formats& cuda_formats(ElementType residual);

}  // namespace tandem::device::cuda
