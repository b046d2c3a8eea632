#include "model/gguf_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "gguf/dequantise.h"
#include "model/gguf_config.h"
#include "model/gguf_groups.h"

namespace tandem::model {
namespace {

// The type of values that are delivered as they are; nullopt for quantised types.
std::optional<ElementType> plain_type(gguf::BlockType type) {
  switch (type) {
    case gguf::BlockType::kF32:
      return ElementType::kF32;
    case gguf::BlockType::kF16:
      return ElementType::kF16;
    case gguf::BlockType::kBF16:
      return ElementType::kBF16;
    default:
      return std::nullopt;
  }
}

// Rows of q and k that belong to one head, where the file has them in pairs. Qwen's files have them
// as they are.
int64_t paired_head_rows(const ModelConfig& config, std::string_view name) {
  const bool of_llama =
      config.architecture == Architecture::kLlama || config.architecture == Architecture::kMistral;
  const bool rotated = name.ends_with(".attn_q.weight") || name.ends_with(".attn_k.weight") ||
                       name.ends_with(".attn_q.bias") || name.ends_with(".attn_k.bias");
  return of_llama && rotated ? config.head_dim : 0;
}

void write_row(const GgufTensor& stored, int64_t row, const TensorEntry& entry, std::byte* out) {
  if (plain_type(stored.type)) {
    std::copy_n(stored.row(row), stored.row_bytes, out);
    return;
  }
  const auto count = static_cast<size_t>(stored.row_elements);
  if (entry.quantization != Quantization::kNone) {
    gguf_groups(stored.type, stored.row(row), entry.quantization,
                std::span(reinterpret_cast<kernels::QuantizedGroup*>(out),
                          count / size_t{kQuantizedGroup}));
  } else if (*entry.type == ElementType::kF32) {
    gguf::dequantise(stored.type, stored.row(row),
                     std::span<float>(reinterpret_cast<float*>(out), count));
  } else {
    gguf::dequantise(stored.type, stored.row(row),
                     std::span<BFloat16>(reinterpret_cast<BFloat16*>(out), count));
  }
}

}  // namespace

int64_t GgufTensor::stored_row(int64_t row) const {
  if (head_rows == 0) {
    return row;
  }
  const int64_t in_head = row % head_rows;
  const int64_t half = head_rows / 2;
  return row - in_head + in_head % half * 2 + in_head / half;
}

bool GgufSource::Placed::direct() const {
  return plain_type(stored.type).has_value() && stored.head_rows == 0;
}

Result<std::unique_ptr<WeightSource>> GgufSource::open(const std::filesystem::path& path,
                                                       const WeightFormats& formats) {
  ASSIGN_OR_RETURN(gguf::Files files, gguf::Files::open(path));
  ASSIGN_OR_RETURN(const ModelConfig config, gguf_config(files));
  std::unique_ptr<GgufSource> source(new GgufSource(std::move(files)));
  source->placed_.resize(source->files_.parts().size());
  for (size_t file = 0; file < source->files_.parts().size(); ++file) {
    for (const gguf::Tensor& tensor : source->files_.parts()[file].header.tensors) {
      RETURN_IF_ERROR(source->place(static_cast<int32_t>(file), tensor, config, formats));
    }
  }
  return std::unique_ptr<WeightSource>(std::move(source));
}

Status GgufSource::place(int32_t file, const gguf::Tensor& tensor, const ModelConfig& config,
                         const WeightFormats& formats) {
  const int64_t head_rows = paired_head_rows(config, tensor.name);
  const std::optional<std::string> name = plan_name_of_gguf(tensor.name);
  if (!name) {
    return {};
  }
  auto placed = std::make_unique<Placed>();
  const gguf::BlockShape block = gguf::block_shape(tensor.type);
  GgufTensor& stored = placed->stored;
  // A vector is one row, unless its elements are rows of a matrix's result.
  const bool one_row = tensor.shape.size() == 1 && head_rows == 0;
  stored.type = tensor.type;
  stored.rows = one_row ? 1 : tensor.shape.front();
  stored.row_elements = 1;
  for (size_t i = one_row ? 0 : 1; i < tensor.shape.size(); ++i) {
    stored.row_elements *= tensor.shape[i];
  }
  if (stored.row_elements % block.elements != 0 ||
      (head_rows != 0 && stored.rows % head_rows != 0)) {
    return invalid_argument(
        fmt::format("{}: tensor '{}' has {} rows of {} values, which do not make whole heads and "
                    "blocks of {}; convert the model again",
                    file_name(file), gguf::shown(tensor.name), stored.rows, stored.row_elements,
                    gguf::type_name(tensor.type)));
  }
  stored.row_bytes = stored.row_elements / block.elements * block.bytes;
  stored.data = mapped(file).bytes().data() + tensor.begin;
  stored.head_rows = head_rows;

  auto& in_file = placed_[static_cast<size_t>(file)];
  TensorEntry& entry = placed->entry;
  entry.name = tensor.name;
  entry.dtype = gguf::type_name(tensor.type);
  const bool matrix = tensor.shape.size() == 2;
  const Quantization own = matrix ? stored_quantization(tensor.type) : Quantization::kNone;
  const std::optional<ElementType> plain = plain_type(tensor.type);
  const Delivery delivery =
      plain ? Delivery{*plain} : delivery_of(own, *name, config.head_dim, formats);
  entry.type = delivery.type;
  entry.quantization = delivery.quantization;
  entry.shape = tensor.shape;
  entry.begin = in_file.empty() ? 0 : next_tensor_begin(in_file.back()->entry.end);
  entry.end = entry.begin + kernels::source_bytes(*entry.type, entry.quantization,
                                                  stored.rows * stored.row_elements);
  tensors_[*name] = {&entry, file};
  in_file.push_back(std::move(placed));
  return {};
}

std::string_view GgufSource::file_name(int32_t file) const {
  return files_.parts()[static_cast<size_t>(file)].name;
}

std::string GgufSource::name_in_file(std::string_view tensor) const {
  return gguf_name_of_plan(tensor);
}

const MappedFile& GgufSource::mapped(int32_t file) const {
  return *files_.parts()[static_cast<size_t>(file)].mapped;
}

const GgufSource::Placed& GgufSource::at(int32_t file, int64_t offset) const {
  return placed_at(placed_[static_cast<size_t>(file)], offset);
}

GgufSource::ByteSpan GgufSource::stored_span(int32_t file, const Placed& placed, int64_t first,
                                             int64_t last) const {
  const GgufTensor& stored = placed.stored;
  if (stored.head_rows != 0) {  // rows move inside their head only
    first = first / stored.head_rows * stored.head_rows;
    last = (last + stored.head_rows - 1) / stored.head_rows * stored.head_rows;
  }
  const int64_t begin = stored.data - mapped(file).bytes().data();
  return {begin + first * stored.row_bytes, begin + last * stored.row_bytes};
}

template <class Use>
void GgufSource::each_span(int32_t file, int64_t begin, int64_t end, const Use& use) const {
  for (const auto& placed : placed_[static_cast<size_t>(file)]) {
    const int64_t from = std::max(begin, placed->entry.begin) - placed->entry.begin;
    const int64_t to = std::min(end, placed->entry.end) - placed->entry.begin;
    if (from < to) {
      const int64_t row_bytes = placed->delivered_row_bytes();
      use(stored_span(file, *placed, from / row_bytes, (to + row_bytes - 1) / row_bytes));
    }
  }
}

const std::byte* GgufSource::data(int32_t file, int64_t offset) const {
  const Placed& placed = at(file, offset);
  if (placed.direct()) {
    return placed.stored.data + (offset - placed.entry.begin);
  }
  return converted_.at(file, offset);
}

void GgufSource::will_need(int32_t file, int64_t begin, int64_t end) const {
  each_span(file, begin, end, [&](ByteSpan span) { mapped(file).will_need(span.begin, span.end); });
}

Status GgufSource::load(int32_t file, int64_t begin, int64_t end) const {
  const Placed& placed = at(file, begin);
  const int64_t row_bytes = placed.delivered_row_bytes();
  const int64_t first = (begin - placed.entry.begin) / row_bytes;
  const int64_t last = (end - placed.entry.begin) / row_bytes;
  CHECK(end <= placed.entry.end && first * row_bytes == begin - placed.entry.begin &&
            last * row_bytes == end - placed.entry.begin,
        "[{}, {}) of tensor '{}' is not whole rows of {} bytes", begin, end, placed.entry.name,
        row_bytes);
  const ByteSpan span = stored_span(file, placed, first, last);
  RETURN_IF_ERROR(mapped(file).populate(span.begin, span.end));
  if (placed.direct()) {
    return {};
  }
  ConvertedRows::Buffer buffer = converted_.take(end - begin);
  for (int64_t row = first; row < last; ++row) {
    write_row(placed.stored, row, placed.entry, buffer.bytes.get() + (row - first) * row_bytes);
  }
  converted_.put(file, begin, end, std::move(buffer));
  return {};
}

void GgufSource::release(int32_t file, int64_t begin, int64_t end) const {
  each_span(file, begin, end, [&](ByteSpan span) { mapped(file).release(span.begin, span.end); });
  converted_.release(file, begin, end);
}

}  // namespace tandem::model
