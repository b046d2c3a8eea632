// The ops that `tandem bench kernels --device` measures, with operands as a model of a given shape
// has them: products and attention rotate over more weights and KV than a cache holds; the other
// ops use one set, as a step does, whose rows were just written.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/device_stand.h"
#include "bench/device_work.h"
#include "model/config.h"

namespace tandem::bench {

inline constexpr ElementType kCaseType = ElementType::kBF16;  // type of weights, activations and KV
inline constexpr int32_t kCaseBlockTokens = 32;

// Which rows of the table are measured, and over how much memory.
struct DeviceCaseSizes {
  std::vector<int64_t> product_rows = {1, 16, 64, 256, 2048, 4096};
  std::vector<int32_t> decode_batches = {1, 16, 64, 128};
  std::vector<int32_t> contexts = {512, 2048, 8192};
  std::vector<int32_t> prompts = {1024, 4096, 8192};
  std::vector<int64_t> rows = {1, 64, 2048};  // sizes of ops that treat rows one by one
  int64_t visitors = 32;
  int64_t max_head_rows = 256;                 // most rows of the product with the vocabulary
  int64_t max_sampled_rows = 64;               // most rows of SampleOp
  int64_t rotated_bytes = int64_t{512} << 20;  // weights, K and V, and logits take turns over it
  int64_t copied_bytes = int64_t{2} << 30;     // on the device
  int64_t link_bytes = int64_t{128} << 20;     // between the tiers
  std::vector<int64_t> peak_sides = {8192, 4096};  // of square products
};

// The same for a model of some thousand parameters and a few MiB of memory: shows that it works.
DeviceCaseSizes tiny_sizes();
// A few rows of each kind.
DeviceCaseSizes quick_sizes();

// A row of the table: `ops` are launched in turn, `together` of them count as one. Their operands
// are on the stand until its next clear().
struct DeviceCase {
  std::string op;
  std::string shape;    // of the model; empty: any
  int64_t rows = 0;     // that one of them computes
  int64_t context = 0;  // tokens that attention reads of each sequence
  std::vector<device::Op> ops = {};
  int32_t together = 1;
  std::vector<device::Op> before = {};     // launched before each timing, and not timed
  int32_t max_launches = 0;                // of a timing; 0: any number
  Work work = {};                          // of `together` ops
  std::shared_ptr<const void> keeps = {};  // host memory that the ops name
};

// A case that is not made yet, so that its operands need not be there.
struct PlannedCase {
  std::string op;
  std::string shape;
  std::function<DeviceCase(DeviceStand&)> make;
};

// Copies on the device and square products: the ceilings.
std::vector<PlannedCase> ceiling_cases(const DeviceCaseSizes& sizes);
std::vector<PlannedCase> link_cases(const DeviceCaseSizes& sizes);
std::vector<PlannedCase> attention_cases(const std::string& shape, const model::ModelConfig& config,
                                         const DeviceCaseSizes& sizes);
std::vector<PlannedCase> product_cases(const std::string& shape, const model::ModelConfig& config,
                                       const DeviceCaseSizes& sizes);
std::vector<PlannedCase> row_cases(const std::string& shape, const model::ModelConfig& config,
                                   const DeviceCaseSizes& sizes);

}  // namespace tandem::bench
