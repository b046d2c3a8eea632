#include "model/packed_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/check.h"
#include "kernels/quantize.h"
#include "model/packed_values.h"

namespace tandem::model {
namespace {

bool is_plan_bias(std::string_view name, const ModelConfig& config) {
  constexpr std::array<std::string_view, 3> kWithBias = {".q_proj.bias", ".k_proj.bias",
                                                         ".v_proj.bias"};
  return config.qkv_bias && std::ranges::any_of(kWithBias, [&](std::string_view suffix) {
           return name.ends_with(suffix);
         });
}

}  // namespace

Result<std::optional<WeightFormats>> packed_weight_formats(const std::filesystem::path& folder,
                                                           const ModelConfig& config) {
  CHECK(config.quantization, "'{}' has no quantised weights", folder.string());
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(folder));
  ASSIGN_OR_RETURN(const auto layers, find_packed_layers(checkpoint, *config.quantization));
  std::map<std::string, StoredMatrix, std::less<>> matrices;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const std::vector<int64_t>& shape = tensor.entry->shape;
    if (name.ends_with(".weight") && tensor.entry->type && shape.size() == 2) {
      matrices[name] = {Quantization::kNone, shape[0] * shape[1]};
    }
  }
  for (const auto& [name, layer] : layers) {
    matrices[name + ".weight"] = {layer.kind(), layer.rows * layer.columns};
  }
  return stored_weight_formats(method_name(config.quantization->method), matrices, config);
}

Result<std::unique_ptr<WeightSource>> PackedSource::open(const std::filesystem::path& folder,
                                                         const ModelConfig& config,
                                                         const WeightFormats& formats) {
  CHECK(config.quantization, "'{}' has no quantised weights", folder.string());
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(folder));
  std::unique_ptr<PackedSource> source(new PackedSource(std::move(checkpoint)));
  ASSIGN_OR_RETURN(source->layers_, find_packed_layers(source->checkpoint_, *config.quantization));
  for (const auto& [name, layer] : source->layers_) {
    RETURN_IF_ERROR(check_packed_layer(source->checkpoint_, layer));
    source->layer_names_[layer.values.entry] = &name;
  }
  source->placed_.resize(source->checkpoint_.files().size());
  for (size_t file = 0; file < source->placed_.size(); ++file) {
    for (const TensorEntry& tensor : source->checkpoint_.files()[file].tensors) {
      RETURN_IF_ERROR(source->place(static_cast<int32_t>(file), tensor, config, formats));
    }
  }
  return std::unique_ptr<WeightSource>(std::move(source));
}

Result<bool> PackedSource::is_idle_bias(int32_t file, const TensorEntry& tensor,
                                        const ModelConfig& config) const {
  constexpr std::string_view kSuffix = ".bias";
  if (!tensor.name.ends_with(kSuffix) || !tensor.type || is_plan_bias(tensor.name, config) ||
      !layers_.contains(tensor.name.substr(0, tensor.name.size() - kSuffix.size()))) {
    return false;
  }
  RETURN_IF_ERROR(checkpoint_.load(file, tensor.begin, tensor.end));
  const std::byte* data = checkpoint_.data(file, tensor.begin);
  return std::all_of(data, data + tensor.bytes(),
                     [](std::byte value) { return value == std::byte{0}; });
}

Status PackedSource::place(int32_t file, const TensorEntry& tensor, const ModelConfig& config,
                           const WeightFormats& formats) {
  const WeightSource::Tensor* known = checkpoint_.find(tensor.name);
  if (known == nullptr || known->entry != &tensor) {
    return {};  // the index has it in another file, or not at all
  }
  ASSIGN_OR_RETURN(const bool idle, is_idle_bias(file, tensor, config));
  if (idle) {
    return {};
  }
  auto placed = std::make_unique<Placed>();
  placed->stored = &tensor;
  placed->entry = tensor;
  std::string name = tensor.name;
  int64_t bytes = tensor.bytes();
  if (const auto it = layer_names_.find(&tensor); it != layer_names_.end()) {
    const PackedLayer& layer = layers_.at(*it->second);
    name = *it->second + ".weight";
    const Delivery delivery = delivery_of(layer.kind(), name, config.head_dim, formats);
    placed->packed = &layer;
    placed->entry.shape = {layer.rows, layer.columns};
    placed->entry.type = delivery.type;
    placed->entry.quantization = delivery.quantization;
    bytes = kernels::source_bytes(delivery.type, delivery.quantization, layer.rows * layer.columns);
  }
  auto& in_file = placed_[static_cast<size_t>(file)];
  placed->entry.begin = in_file.empty() ? 0 : next_tensor_begin(in_file.back()->entry.end);
  placed->entry.end = placed->entry.begin + bytes;
  tensors_[name] = {&placed->entry, file};
  in_file.push_back(std::move(placed));
  return {};
}

std::string PackedSource::name_in_file(std::string_view tensor) const {
  const Tensor* known = find(tensor);
  return known == nullptr ? std::string(tensor) : known->entry->name;
}

const std::byte* PackedSource::data(int32_t file, int64_t offset) const {
  const Placed& placed = placed_at(placed_[static_cast<size_t>(file)], offset);
  return placed.packed == nullptr
             ? checkpoint_.data(file, placed.stored->begin + offset - placed.entry.begin)
             : converted_.at(file, offset);
}

// Rows of a layer are spread over all of its values, so its parts are loaded whole.
template <class Use>
void PackedSource::each_part(int32_t file, const Placed& placed, int64_t begin, int64_t end,
                             const Use& use) const {
  if (placed.packed == nullptr) {
    const int64_t shift = placed.stored->begin - placed.entry.begin;
    use(file, begin + shift, end + shift);
    return;
  }
  for (const PackedLayer::Part* part : {&placed.packed->values, &placed.packed->scales,
                                        &placed.packed->zeros, &placed.packed->order}) {
    if (part->entry != nullptr) {
      use(part->file, part->entry->begin, part->entry->end);
    }
  }
}

template <class Use>
void PackedSource::each_placed(int32_t file, int64_t begin, int64_t end, const Use& use) const {
  for (const auto& placed : placed_[static_cast<size_t>(file)]) {
    const int64_t from = std::max(begin, placed->entry.begin);
    const int64_t to = std::min(end, placed->entry.end);
    if (from < to) {
      use(*placed, from, to);
    }
  }
}

void PackedSource::will_need(int32_t file, int64_t begin, int64_t end) const {
  each_placed(file, begin, end, [&](const Placed& placed, int64_t from, int64_t to) {
    if (placed.packed == nullptr || from == placed.entry.begin) {  // a layer once
      each_part(file, placed, from, to, [&](int32_t part, int64_t part_begin, int64_t part_end) {
        checkpoint_.will_need(part, part_begin, part_end);
      });
    }
  });
}

Status PackedSource::load(int32_t file, int64_t begin, int64_t end) const {
  const Placed& placed = placed_at(placed_[static_cast<size_t>(file)], begin);
  const TensorEntry& entry = placed.entry;
  CHECK(end <= entry.end, "[{}, {}) is more than tensor '{}'", begin, end, entry.name);
  Status loaded;
  each_part(file, placed, begin, end, [&](int32_t part, int64_t part_begin, int64_t part_end) {
    loaded = loaded.ok() ? checkpoint_.load(part, part_begin, part_end) : loaded;
  });
  if (!loaded.ok() || placed.packed == nullptr) {
    return loaded;
  }
  const PackedLayer& layer = *placed.packed;
  const int64_t row_bytes = entry.bytes() / layer.rows;
  const int64_t first = (begin - entry.begin) / row_bytes;
  const int64_t last = (end - entry.begin) / row_bytes;
  CHECK(first * row_bytes == begin - entry.begin && last * row_bytes == end - entry.begin,
        "[{}, {}) of tensor '{}' is not whole rows of {} bytes", begin, end, entry.name, row_bytes);
  ConvertedRows::Buffer buffer = converted_.take(end - begin);
  if (entry.quantization == Quantization::kNone) {
    packed_numbers(layer, *entry.type, first, last, buffer.bytes.get());
  } else {
    packed_groups(layer, entry.quantization, first, last,
                  reinterpret_cast<kernels::QuantizedGroup*>(buffer.bytes.get()));
  }
  converted_.put(file, begin, end, std::move(buffer));
  return {};
}

void PackedSource::release(int32_t file, int64_t begin, int64_t end) const {
  each_placed(file, begin, end, [&](const Placed& placed, int64_t from, int64_t to) {
    if (placed.packed == nullptr || to == placed.entry.end) {  // a layer with its last rows
      each_part(file, placed, from, to, [&](int32_t part, int64_t part_begin, int64_t part_end) {
        checkpoint_.release(part, part_begin, part_end);
      });
    }
  });
  converted_.release(file, begin, end);
}

}  // namespace tandem::model
