// The CUDA back end: one GPU with memory of its own, the host beside it. Its ops are kernels of its
// own (kernels/), but for products, which cuBLASLt computes if it is found, and attention over KV
// in bf16, FlashInfer's kernels if the build has them.
#pragma once

#include <memory>

#include "base/result.h"
#include "device/device.h"
#include "device/open/open.h"

namespace tandem::device::cuda {

// The GPU has the index spec.accelerator->options. It takes spec.device_memory_bytes at once (0:
// kMemoryShare of what is free) and spec.host_memory_bytes of pinned host memory (0: as it is asked
// for). Errors: as of probe(), and too little memory, with the numbers.
Result<std::unique_ptr<Device>> make_cuda_device(const DeviceSpec& spec);

// cuBLASLt computes products if it is found. kProductsVariable: "plain" does not look for it,
// "library" fails if it is absent; kLibraryVariable names its file.
inline constexpr const char* kProductsVariable = "TANDEM_CUDA_PRODUCTS";
inline constexpr const char* kLibraryVariable = "TANDEM_CUBLASLT";
// "plain": FlashInfer's kernels are not used; "flashinfer" fails if the build has none.
inline constexpr const char* kAttentionVariable = "TANDEM_CUDA_ATTENTION";
// "auto": a trial at the start decides whether FlashInfer's kernels for Hopper attend prompts
// (prefill_choice.h); "hopper": they attend all that they can, untimed, and the start fails if they
// cannot. "ampere" (or nothing): they do not, and are not tried.
inline constexpr const char* kPrefillVariable = "TANDEM_CUDA_PREFILL";
// "bfloat16" keeps the residual of models with weights in bf16 in that type, "float32" (or nothing)
// in fp32.
inline constexpr const char* kResidualVariable = "TANDEM_CUDA_RESIDUAL";

// The rest is for what the driver and kernels take themselves.
inline constexpr double kMemoryShare = 0.9;

}  // namespace tandem::device::cuda
