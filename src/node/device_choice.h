// Whether --device auto takes the GPU or the CPUs, and why. Pure functions: the caller finds the
// facts one after the other and may ask after each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace tandem {

// What the user says about the GPU with --device auto.
struct AutomaticGpu {
  // The option that only a GPU can follow, without dashes: then an error of the GPU is an error,
  // and the CPUs do not serve in its place. Empty: there is no such option.
  std::string required_by;
  // The size of the host's memory is a default, which a model that needs less reduces.
  bool may_reduce_host_memory = false;
};

// The facts about the GPU so far. A fact that is not known yet is not an obstacle.
struct GpuFacts {
  bool has_plugin = true;                   // its back end's file is there
  std::optional<Error> options = {};        // why a GPU cannot follow the options
  std::optional<Error> probe = {};          // why there is no GPU that can be used
  std::optional<Error> model = {};          // why it cannot serve the model
  std::string name = {};                    // AcceleratorCaps::name of the open device
  std::optional<std::string> kernels = {};  // AcceleratorCaps::kernels of the open device
};

struct DeviceChoice {
  bool takes_gpu = false;
  std::string reason = {};
};

// Error: an option or a variable asks for the GPU, which cannot be taken.
Result<DeviceChoice> choose_device(const AutomaticGpu& gpu, const GpuFacts& facts);

// "device: the CPUs (auto: cuda: absent: ...)".
std::string describe(const DeviceChoice& choice);

// Of the second tier beside a GPU that --device auto takes, if the user does not give it: a share
// of `available_bytes` of the host, `max_bytes` at most. The model that comes with Tandem needs
// little.
inline constexpr int64_t kMaxAutomaticHostBytes = int64_t{4} << 30;
inline constexpr int64_t kDefaultModelHostBytes = int64_t{512} << 20;
int64_t automatic_host_memory(int64_t available_bytes, int64_t max_bytes);

}  // namespace tandem
