// Writes safetensors files of random weights, many threads beside each other. See make.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/random_tensor.h"
#include "model/weights.h"

namespace tandem::model {

struct RandomWeight {
  std::string name;
  std::vector<int64_t> shape;
  Normal distribution;
};

struct RandomWeights {
  std::vector<RandomWeight> tensors;
  ElementType type = ElementType::kBF16;
  uint64_t seed = 0;
  int64_t shard_bytes = 0;  // a new file begins where the next tensor would pass this
};

// Into an existing folder: model.safetensors, or shards and model.safetensors.index.json.
// kResourceExhausted where the disk has not the room. Leaves what is written so far on failure.
Status write_random_weights(const RandomWeights& weights, const std::filesystem::path& folder,
                            const std::function<void(const LoadProgress&)>& on_progress);

// A small file, whole.
Status write_text_file(const std::filesystem::path& file, const std::string& text);

}  // namespace tandem::model
