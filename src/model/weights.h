// A model's weights in device memory, in the back end's layouts. Made once by load_weights;
// read-only afterwards.
//
// Padding at load: heads are padded from head_dim to a multiple of 32, every other dimension at its
// end to a multiple of 32.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "device/cpu/host_formats.h"
#include "device/device.h"
#include "model/config.h"
#include "model/weight_formats.h"
#include "model/weight_source.h"

namespace tandem::model {

struct LayerWeights {
  const float* attention_norm = nullptr;  // [hidden]
  device::WeightMatrix
      qkv;  // n: (heads + 2 kv_heads) * padded_head_dim, order q | k | v; k: padded hidden
  const float* qkv_bias = nullptr;  // [qkv.n] padded like n, or null
  const float* q_norm = nullptr;    // [head_dim], of every head of q, or null
  const float* k_norm = nullptr;    // the same of k
  device::WeightMatrix output;      // n: padded hidden; k: heads * padded_head_dim
  const float* mlp_norm = nullptr;  // [hidden]
  device::WeightMatrix gate_up;     // n: gate and up, 2 x padded intermediate; k: padded hidden
  device::WeightMatrix down;        // n: padded hidden; k: padded intermediate
};

struct Weights {
  device::WeightFormat format;               // of most matrices; each names its own
  device::NumberTypes numbers;               // of what products read and write
  const device::Formats* formats = nullptr;  // of the back end that holds them
  int32_t padded_hidden = 0;
  int32_t padded_head_dim = 0;
  int32_t padded_intermediate = 0;
  int32_t padded_vocabulary = 0;
  device::WeightMatrix embedding;  // n: padded vocabulary, k: padded hidden
  std::vector<LayerWeights> layers;
  const float* final_norm = nullptr;                    // [hidden]
  device::WeightMatrix lm_head;                         // the embedding itself when tied
  std::vector<std::unique_ptr<device::Memory>> memory;  // owns all of it
  [[nodiscard]] int64_t bytes() const {
    int64_t sum = 0;
    for (const auto& piece : memory) {
      sum += piece->bytes();
    }
    return sum;
  }
};

struct LoadProgress {
  int64_t bytes_done = 0;
  int64_t bytes_total = 0;
};

struct LoadOptions {
  WeightFormats format;  // that the device supports
  std::function<void(const LoadProgress&)>
      on_progress;  // called now and then on the calling thread; may be empty
};

// Bytes of device memory that load_weights will take on a device with such formats.
int64_t weight_bytes(const ModelConfig& config, const WeightFormats& format,
                     const device::Formats& formats = device::host_formats());

// The padded shapes without any data, for a device that does not look at it.
Weights hollow_weights(const ModelConfig& config, const WeightFormats& format,
                       const device::Formats& formats = device::host_formats());

// The checks of load_weights that need only the headers of the model's files (and, of quantised
// checkpoints, biases that may be zero): format, and presence, shape and type of every tensor.
Status check_weights(const std::filesystem::path& path, const ModelConfig& config,
                     const WeightFormats& format, const device::Formats& formats);

// Checks every tensor's presence, shape, type and range before touching data, uploads through the
// device and releases the source's pages file by file. Errors name the file and tensor. NaN or
// infinite weights are an error that names the tensor.
Result<Weights> load_weights(const WeightSource& source, const ModelConfig& config,
                             device::Device& device, const LoadOptions& options);
// From the files of a folder, or from a GGUF file.
Result<Weights> load_weights(const std::filesystem::path& path, const ModelConfig& config,
                             device::Device& device, const LoadOptions& options);

}  // namespace tandem::model
