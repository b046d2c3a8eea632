// Where every weight of a model lies in device memory, and which tensor goes there how. Arithmetic
// on shapes; reads no file, copies nothing. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "kernels/gemm.h"
#include "model/config.h"
#include "model/weights.h"

namespace tandem::model {

// One tensor of the checkpoint and its place.
struct WeightJob {
  std::string tensor;          // "model.layers.0.mlp.down_proj.weight"
  std::vector<int64_t> shape;  // as it must be in the checkpoint: [n, k], or [n] of a vector
  kernels::PaddedDim n;
  kernels::PaddedDim k;         // of a matrix
  device::WeightMatrix target;  // of a matrix; a part of it where several are fused
  device::WeightPart part = device::WeightPart::kRows;
  int64_t n_offset = 0;         // in the part
  void* target_data = nullptr;  // matrix: writable target.data; vector: float [n.padded()]
  [[nodiscard]] bool is_vector() const { return shape.size() == 1; }
};

// One allocation.
struct WeightPiece {
  int64_t bytes = 0;
  std::vector<device::WeightExtent> matrices;
};

struct WeightPlan {
  Weights weights;  // owns no memory yet
  std::vector<WeightJob> jobs;
  std::vector<WeightPiece> pieces;  // embedding, each layer, final norm with LM head
};

// Pointers are filled in from `pieces` (one for each piece of the plan); with none, the plan says
// sizes only.
WeightPlan plan_weights(const ModelConfig& config, const WeightFormats& format,
                        const device::Formats& formats, std::span<std::byte* const> pieces);

}  // namespace tandem::model
