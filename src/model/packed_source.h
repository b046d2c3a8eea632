// The tensors of a folder with quantised weights (GPTQ, AWQ, compressed-tensors) as a weight
// source: a quantised layer X is the matrix X.weight, as groups, bf16 or fp32 (packed_values.h);
// other tensors are delivered unchanged. Values are converted when they are loaded and forgotten
// when they are released. Any thread.
//
// Offsets are of a file's values as delivered, tensor behind tensor in the file's order. What is
// loaded must be whole rows of one tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/converted_rows.h"
#include "model/packed_layer.h"
#include "model/weight_formats.h"
#include "model/weight_source.h"

namespace tandem::model {

// The formats in which the weights of the folder stay as they are; nullopt if none can. Needs
// config.quantization. Reads headers and the order of columns.
Result<std::optional<WeightFormats>> packed_weight_formats(const std::filesystem::path& folder,
                                                           const ModelConfig& config);

class PackedSource final : public WeightSource {
 public:
  // As open_weights of weight_source.h. Needs config.quantization. Biases of quantised layers that
  // the model has no place for are left out if they are 0, as some converters write them.
  static Result<std::unique_ptr<WeightSource>> open(const std::filesystem::path& folder,
                                                    const ModelConfig& config,
                                                    const WeightFormats& formats);

  [[nodiscard]] const std::map<std::string, Tensor, std::less<>>& tensors() const override {
    return tensors_;
  }
  [[nodiscard]] std::string_view file_name(int32_t file) const override {
    return checkpoint_.file_name(file);
  }
  [[nodiscard]] std::string name_in_file(std::string_view tensor) const override;
  [[nodiscard]] const std::byte* data(int32_t file, int64_t offset) const override;
  void will_need(int32_t file, int64_t begin, int64_t end) const override;
  [[nodiscard]] Status load(int32_t file, int64_t begin, int64_t end) const override;
  void release(int32_t file, int64_t begin, int64_t end) const override;

 private:
  struct Placed {
    TensorEntry entry;
    const TensorEntry* stored = nullptr;  // in the file; of a layer its values
    const PackedLayer* packed = nullptr;  // null: delivered as it is stored
  };

  explicit PackedSource(Checkpoint checkpoint) : checkpoint_(std::move(checkpoint)) {}
  Status place(int32_t file, const TensorEntry& tensor, const ModelConfig& config,
               const WeightFormats& formats);
  // True for a bias of zeros that the model has no place for.
  [[nodiscard]] Result<bool> is_idle_bias(int32_t file, const TensorEntry& tensor,
                                          const ModelConfig& config) const;
  // Calls use(file, begin, end) for the bytes of files that hold [begin, end), as delivered, of a
  // tensor.
  template <class Use>
  void each_part(int32_t file, const Placed& placed, int64_t begin, int64_t end,
                 const Use& use) const;
  // Calls use(placed, begin, end) for each tensor that has values in [begin, end), and their
  // range.
  template <class Use>
  void each_placed(int32_t file, int64_t begin, int64_t end, const Use& use) const;

  Checkpoint checkpoint_;
  std::map<std::string, PackedLayer> layers_;
  std::map<const TensorEntry*, const std::string*> layer_names_;  // by the layer's values
  std::vector<std::vector<std::unique_ptr<Placed>>> placed_;  // by file, in the order of offsets
  std::map<std::string, Tensor, std::less<>> tensors_;
  mutable ConvertedRows converted_;
};

}  // namespace tandem::model
