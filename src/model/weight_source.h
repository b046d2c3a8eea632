// Where a model's tensors come from: an interface for whatever holds them (safetensors files, see
// checkpoint.h, quantised or not, see packed_source.h, and GGUF files, see gguf_source.h). Any
// thread; what is loaded changes, nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/element_type.h"
#include "base/quantization.h"
#include "base/result.h"

namespace tandem::model {

struct ModelConfig;
struct WeightFormats;

struct TensorEntry {
  std::string name;
  std::string dtype;                // as written: "BF16"
  std::optional<ElementType> type;  // of the dtypes that weights may have
  // Not kNone: the tensor is delivered as rows of kernels::QuantizedGroup of this kind, not of
  // `type`.
  Quantization quantization = Quantization::kNone;
  std::vector<int64_t> shape;  // slowest first
  int64_t begin = 0;           // in the file, or where its source says
  int64_t end = 0;
  [[nodiscard]] int64_t bytes() const { return end - begin; }
};

class WeightSource {
 public:
  struct Tensor {
    const TensorEntry* entry = nullptr;
    int32_t file = 0;  // tensors of a file are read in the order of their offsets
  };
  virtual ~WeightSource() = default;

  [[nodiscard]] virtual const std::map<std::string, Tensor, std::less<>>& tensors() const = 0;
  [[nodiscard]] virtual std::string_view file_name(int32_t file) const = 0;
  // What the files call the tensor that tensors() has, or would have, as `tensor`: for errors.
  [[nodiscard]] virtual std::string name_in_file(std::string_view tensor) const = 0;
  // The file's bytes from `offset` on. To be read only where load() has succeeded.
  [[nodiscard]] virtual const std::byte* data(int32_t file, int64_t offset) const = 0;
  // [begin, end) will be loaded soon: a hint.
  virtual void will_need(int32_t file, int64_t begin, int64_t end) const = 0;
  // Brings [begin, end) to memory. An error where it cannot be read.
  [[nodiscard]] virtual Status load(int32_t file, int64_t begin, int64_t end) const = 0;
  // [begin, end) is not needed any more.
  virtual void release(int32_t file, int64_t begin, int64_t end) const = 0;

  [[nodiscard]] const Tensor* find(std::string_view name) const {
    const auto it = tensors().find(name);
    return it == tensors().end() ? nullptr : &it->second;
  }
};

// The weights of a model in the format that its files have: of a folder safetensors, whole or in
// shards; of a file GGUF. `config` is the model's. Quantised tensors are delivered as groups where
// `formats` has a quantised format for them by name, else as numbers: bf16 if those are what
// products read, or fp32 if they are to be rounded when they are packed.
Result<std::unique_ptr<WeightSource>> open_weights(const std::filesystem::path& path,
                                                   const ModelConfig& config,
                                                   const WeightFormats& formats);

}  // namespace tandem::model
