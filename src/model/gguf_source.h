// The tensors of a GGUF model as a weight source: under the names of the plan, rows in the order
// that Tandem's RoPE wants, quantised types as groups (gguf_groups.h), bf16 or fp32. Values are
// converted when they are loaded and forgotten when they are released, so that memory holds what
// the loader works on. The types F32, F16 and BF16 are read where the files are mapped. Any thread.
//
// Offsets are of a file's values as delivered, tensor behind tensor in the file's order. What is
// loaded must be whole rows of one tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"
#include "gguf/files.h"
#include "model/converted_rows.h"
#include "model/weight_formats.h"
#include "model/weight_source.h"

namespace tandem::model {

// A tensor as its file holds it: `rows` runs of blocks, `row_bytes` each.
struct GgufTensor {
  gguf::BlockType type = gguf::BlockType::kF32;
  int64_t rows = 0;
  int64_t row_elements = 0;
  int64_t row_bytes = 0;
  const std::byte* data = nullptr;  // in the mapped file
  int64_t head_rows = 0;            // 0: the file's rows are in order; else see stored_row

  // Where row `row` of the plan's tensor lies in the file. The file has the rows of each head of q
  // and k so that the two of a rotated pair are neighbours; the plan has them half a head apart.
  [[nodiscard]] int64_t stored_row(int64_t row) const;
  [[nodiscard]] const std::byte* row(int64_t row) const {
    return data + stored_row(row) * row_bytes;
  }
};

class GgufSource final : public WeightSource {
 public:
  // As open_weights of weight_source.h.
  static Result<std::unique_ptr<WeightSource>> open(const std::filesystem::path& path,
                                                    const WeightFormats& formats);

  [[nodiscard]] const std::map<std::string, Tensor, std::less<>>& tensors() const override {
    return tensors_;
  }
  [[nodiscard]] std::string_view file_name(int32_t file) const override;
  [[nodiscard]] std::string name_in_file(std::string_view tensor) const override;
  [[nodiscard]] const std::byte* data(int32_t file, int64_t offset) const override;
  void will_need(int32_t file, int64_t begin, int64_t end) const override;
  [[nodiscard]] Status load(int32_t file, int64_t begin, int64_t end) const override;
  void release(int32_t file, int64_t begin, int64_t end) const override;

 private:
  struct Placed {
    TensorEntry entry;
    GgufTensor stored;
    [[nodiscard]] int64_t delivered_row_bytes() const { return entry.bytes() / stored.rows; }
    // Read where it is mapped.
    [[nodiscard]] bool direct() const;
  };
  struct ByteSpan {
    int64_t begin = 0;
    int64_t end = 0;
  };

  explicit GgufSource(gguf::Files files) : files_(std::move(files)) {}
  Status place(int32_t file, const gguf::Tensor& tensor, const ModelConfig& config,
               const WeightFormats& formats);
  [[nodiscard]] const MappedFile& mapped(int32_t file) const;
  // The tensor that has `offset`, which must be in one.
  [[nodiscard]] const Placed& at(int32_t file, int64_t offset) const;
  // The bytes of the file that hold rows [first, last) of a tensor.
  [[nodiscard]] ByteSpan stored_span(int32_t file, const Placed& placed, int64_t first,
                                     int64_t last) const;
  // Calls `use` for every tensor that has values in [begin, end), with what holds them in the file.
  template <class Use>
  void each_span(int32_t file, int64_t begin, int64_t end, const Use& use) const;

  gguf::Files files_;
  std::vector<std::vector<std::unique_ptr<Placed>>> placed_;  // by file, in the order of offsets
  std::map<std::string, Tensor, std::less<>> tensors_;
  mutable ConvertedRows converted_;
};

}  // namespace tandem::model
