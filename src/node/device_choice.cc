#include "node/device_choice.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {
namespace {

constexpr int64_t kHostShare = 8;  // of the available memory, one part
constexpr int64_t kWholeBytes = int64_t{1} << 20;

// The kernels of a GPU whose products are computed by cuBLASLt begin with this.
constexpr const char* kFastProducts = "cuda-cublaslt";

std::optional<Error> slow_products(const GpuFacts& facts) {
  if (!facts.kernels.has_value() || facts.kernels->starts_with(kFastProducts)) {
    return std::nullopt;
  }
  return Error{ErrorCode::kUnavailable,
               fmt::format("{} has no cuBLASLt for its products, and is slow without it; install "
                           "the library of CUDA 13 (in an active Python environment: pip install "
                           "nvidia-cublas), and do not set TANDEM_CUDA_PRODUCTS=plain. --device "
                           "cuda takes the GPU without it",
                           facts.name),
               "device"};
}

// The first thing that speaks against the GPU.
std::optional<Error> obstacle(const GpuFacts& facts) {
  for (const std::optional<Error>& error : {facts.options, facts.probe, facts.model}) {
    if (error.has_value()) {
      return error;
    }
  }
  return slow_products(facts);
}

// Variables such as TANDEM_CUBLASLT are read by the GPU's back end alone: a user who
// sets one means the GPU, so a wrong value must not lead to the CPUs.
bool is_about_variable(const Error& error) { return error.param.starts_with("TANDEM_"); }

}  // namespace

Result<DeviceChoice> choose_device(const AutomaticGpu& gpu, const GpuFacts& facts) {
  const std::optional<Error> found = obstacle(facts);
  if (!found.has_value()) {
    return DeviceChoice{.takes_gpu = true, .reason = "a GPU is there and serves the model"};
  }
  if (is_about_variable(*found)) {
    return *found;
  }
  if (facts.has_plugin && !gpu.required_by.empty()) {
    return Error{found->code,
                 fmt::format("--{0} is for two tiers, and --device auto cannot take a GPU for "
                             "them: {1}. To serve on the CPUs, leave --{0} out or give "
                             "--emulate-accelerator",
                             gpu.required_by, found->message),
                 found->param};
  }
  return DeviceChoice{.takes_gpu = false, .reason = found->message};
}

std::string describe(const DeviceChoice& choice) {
  return fmt::format("device: the {} (auto: {})", choice.takes_gpu ? "GPU" : "CPUs", choice.reason);
}

int64_t automatic_host_memory(int64_t available_bytes, int64_t max_bytes) {
  return std::min(available_bytes / kHostShare / kWholeBytes * kWholeBytes, max_bytes);
}

}  // namespace tandem
