#include "model/packed_layer.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "model/packed_values.h"

namespace tandem::model {
namespace {

using Layout = PackedLayer::Layout;
using Part = PackedLayer::Part;
using Shape = std::vector<int64_t>;

constexpr int64_t kMaxDimension = int64_t{1} << 31;

// How the tensors of a layer are called behind its name.
struct Names {
  std::string_view values;
  std::string_view scales;
  std::string_view zeros;
  std::string_view order;
};

Names names_of(Layout layout) {
  switch (layout) {
    case Layout::kColumnWords:
      return {".qweight", ".scales", ".qzeros", ".g_idx"};
    case Layout::kRowWords:
      return {".qweight", ".scales", ".qzeros", ""};
    case Layout::kPacked:
      return {".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_g_idx"};
    case Layout::kBytes:
      return {".weight", ".weight_scale", ".weight_zero_point", ".weight_g_idx"};
  }
  return {};
}

// The layouts in which a method may hold a layer.
std::vector<Layout> layouts_of(QuantizationMethod method) {
  switch (method) {
    case QuantizationMethod::kGptq:
      return {Layout::kColumnWords};
    case QuantizationMethod::kAwq:
      return {Layout::kRowWords};
    case QuantizationMethod::kCompressedTensors:
      return {Layout::kPacked, Layout::kBytes};
  }
  return {};
}

Error layer_error(const Checkpoint& checkpoint, const Part& part, std::string_view message) {
  return invalid_argument(fmt::format("{}: tensor '{}' {}", checkpoint.file_name(part.file),
                                      part.entry->name.substr(0, 200), message),
                          part.entry->name);
}

int32_t middle_of(const PackedLayer& layer) {
  return layer.layout == Layout::kBytes ? 0 : 1 << (layer.scheme.bits - 1);
}

struct OffMiddle {
  int64_t row = 0;
  int32_t zero = 0;
};

// The first zero point that a symmetric layer would not have. Needs zero points.
Result<std::optional<OffMiddle>> find_off_middle(const Checkpoint& checkpoint,
                                                 const PackedLayer& layer) {
  const Part& zeros = layer.zeros;
  RETURN_IF_ERROR(checkpoint.load(zeros.file, zeros.entry->begin, zeros.entry->end));
  const int32_t middle = middle_of(layer);
  for (int64_t row = 0; row < layer.rows; ++row) {
    for (int64_t group = 0; group < layer.groups; ++group) {
      if (const int32_t zero = packed_zero(layer, row, group); zero != middle) {
        return std::optional(OffMiddle{row, zero});
      }
    }
  }
  return std::optional<OffMiddle>();
}

class LayerReader {
 public:
  LayerReader(const Checkpoint& checkpoint, const QuantizationConfig& config, Layout layout,
              std::string_view layer)
      : checkpoint_(checkpoint), config_(config), names_(names_of(layout)), stem_(layer) {
    layer_.layout = layout;
    layer_.zeros_minus_one = config.zeros_minus_one;
  }

  Result<PackedLayer> read() {
    layer_.values = part(names_.values);
    layer_.scales = part(names_.scales);
    layer_.zeros = part(names_.zeros);
    layer_.order = names_.order.empty() ? Part{} : part(names_.order);
    RETURN_IF_ERROR(check_twice());
    RETURN_IF_ERROR(check_types());
    Shape stated;
    if (layer_.layout == Layout::kPacked) {
      ASSIGN_OR_RETURN(stated, read_shape());
    }
    ASSIGN_OR_RETURN(PackedLayer layer, choose_scheme(stated));
    RETURN_IF_ERROR(find_order(layer));
    return layer;
  }

 private:
  // The first scheme that fits.
  Result<PackedLayer> choose_scheme(const Shape& stated) {
    std::optional<Error> first_problem;
    std::optional<PackedLayer> symmetric;  // fits, if its zero points are the middle
    for (const QuantizationScheme& scheme : config_.schemes) {
      const Status fits = fit(scheme, stated);
      if (!fits.ok()) {
        first_problem = first_problem ? first_problem : fits.error();
      } else if (scheme.symmetric && layer_.zeros.entry != nullptr) {
        symmetric = symmetric ? symmetric : layer_;
      } else {
        return symmetric ? symmetric_or(*symmetric, layer_) : layer_;
      }
    }
    return symmetric ? Result<PackedLayer>(*symmetric) : *first_problem;
  }

  [[nodiscard]] Status find_order(PackedLayer& layer) const {
    const Part& order = layer.order;
    if (order.entry == nullptr) {
      return {};
    }
    RETURN_IF_ERROR(checkpoint_.load(order.file, order.entry->begin, order.entry->end));
    const int64_t group_columns = layer.columns / layer.groups;
    for (int64_t column = 0; column < layer.columns && !layer.reordered; ++column) {
      layer.reordered = layer.group_of(column) != column / group_columns;
    }
    return {};
  }

  // Which of two schemes that fit the layer has, by its zero points.
  [[nodiscard]] Result<PackedLayer> symmetric_or(const PackedLayer& symmetric,
                                                 const PackedLayer& other) const {
    ASSIGN_OR_RETURN(const std::optional<OffMiddle> off, find_off_middle(checkpoint_, symmetric));
    return off ? other : symmetric;
  }

  [[nodiscard]] Part part(std::string_view suffix) const {
    const WeightSource::Tensor* tensor = checkpoint_.find(fmt::format("{}{}", stem_, suffix));
    return tensor == nullptr ? Part{}
                             : Part{tensor->entry, tensor->file,
                                    checkpoint_.data(tensor->file, tensor->entry->begin)};
  }

  [[nodiscard]] Error error(const Part& part, std::string_view message) const {
    return layer_error(checkpoint_, part, message);
  }

  [[nodiscard]] Status check_twice() const {
    const Part plain = part(".weight");
    return layer_.layout == Layout::kBytes || plain.entry == nullptr
               ? Status{}
               : error(plain, fmt::format("duplicates '{}{}', the same weights quantised; "
                                          "remove one of them",
                                          stem_, names_.values));
  }

  [[nodiscard]] Status check_types() const {
    const bool bytes = layer_.layout == Layout::kBytes;
    const char* integers = bytes ? "I8" : "I32";
    RETURN_IF_ERROR(check_type(layer_.values, names_.values, integers, 2));
    RETURN_IF_ERROR(check_type(layer_.scales, names_.scales, "", 2));
    const bool of_words =
        layer_.layout == Layout::kColumnWords || layer_.layout == Layout::kRowWords;
    if (of_words || layer_.zeros.entry != nullptr) {
      RETURN_IF_ERROR(check_type(layer_.zeros, names_.zeros, integers, 2));
    }
    return layer_.order.entry == nullptr ? Status{}
                                         : check_type(layer_.order, names_.order, "I32", 1);
  }

  // `dtype` "": numbers.
  [[nodiscard]] Status check_type(const Part& part, std::string_view suffix, std::string_view dtype,
                                  size_t dimensions) const {
    if (part.entry == nullptr) {
      return error(layer_.values, fmt::format("has no '{}{}' beside it; is the download complete?",
                                              stem_, suffix));
    }
    const TensorEntry& entry = *part.entry;
    const bool known = dtype.empty() ? entry.type.has_value() : entry.dtype == dtype;
    if (!known) {
      return error(part, fmt::format("is {}, but must be {}", entry.dtype.substr(0, 20),
                                     dtype.empty() ? "F16, BF16 or F32" : dtype));
    }
    if (entry.shape.size() != dimensions || entry.bytes() == 0) {
      return error(part, fmt::format("has shape {}, but must have {} dimensions and elements",
                                     format_shape(entry.shape), dimensions));
    }
    return {};
  }

  // compressed-tensors' [rows, columns].
  [[nodiscard]] Result<Shape> read_shape() const {
    const Part shape = part(".weight_shape");
    const bool wide = shape.entry != nullptr && shape.entry->dtype == "I64";
    RETURN_IF_ERROR(check_type(shape, ".weight_shape", wide ? "I64" : "I32", 1));
    if (shape.entry->shape.front() != 2) {
      return error(shape, "must hold 2 numbers");
    }
    RETURN_IF_ERROR(checkpoint_.load(shape.file, shape.entry->begin, shape.entry->end));
    Shape stated;
    for (int64_t i = 0; i < 2; ++i) {
      int64_t wide_value = 0;
      int32_t value = 0;
      std::memcpy(wide ? static_cast<void*>(&wide_value) : &value, shape.data + i * (wide ? 8 : 4),
                  wide ? 8 : 4);
      stated.push_back(wide ? wide_value : value);
      if (stated.back() < 1 || stated.back() > kMaxDimension) {
        return error(shape, fmt::format("holds {}, but must hold numbers from 1 to {}",
                                        stated.back(), kMaxDimension));
      }
    }
    return stated;
  }

  // Sets the rest of the layer, or says which tensor does not fit.
  Status fit(const QuantizationScheme& scheme, const Shape& stated) {
    layer_.scheme = scheme;
    const Shape& values = layer_.values.entry->shape;
    const int64_t per_word = layer_.per_word();
    switch (layer_.layout) {
      case Layout::kColumnWords:
        layer_.rows = values[1];
        layer_.columns = values[0] * per_word;
        break;
      case Layout::kRowWords:
        layer_.rows = values[1] * per_word;
        layer_.columns = values[0];
        break;
      case Layout::kPacked:
        layer_.rows = stated[0];
        layer_.columns = stated[1];
        break;
      case Layout::kBytes:
        layer_.rows = values[0];
        layer_.columns = values[1];
        if (scheme.bits != 8) {
          return error(layer_.values,
                       fmt::format("is I8, but config.json says {} bits", scheme.bits));
        }
        break;
    }
    const int64_t columns = layer_.columns;
    const bool whole = scheme.group_size < 0 || scheme.group_size >= columns;
    if (!whole && columns % scheme.group_size != 0) {
      return error(layer_.values, fmt::format("has {} columns, which groups of {} do not divide",
                                              columns, scheme.group_size));
    }
    layer_.groups = whole ? 1 : columns / scheme.group_size;
    return check_shapes();
  }

  [[nodiscard]] Status check_shapes() const {
    const int64_t per_word = layer_.per_word();
    const auto words = [&](int64_t count) { return (count + per_word - 1) / per_word; };
    const int64_t rows = layer_.rows;
    const int64_t groups = layer_.groups;
    const bool by_group =
        layer_.layout == Layout::kColumnWords || layer_.layout == Layout::kRowWords;
    Shape zeros = {words(rows), groups};
    if (by_group) {
      zeros = {groups, words(rows)};
      if (rows % per_word != 0) {
        return error(layer_.values,
                     fmt::format("has {} rows, which words of {} do not divide", rows, per_word));
      }
    } else if (layer_.layout == Layout::kBytes) {
      zeros = {rows, groups};
    }
    if (layer_.layout == Layout::kPacked) {
      RETURN_IF_ERROR(check_shape(layer_.values, {rows, words(layer_.columns)}));
    }
    RETURN_IF_ERROR(
        check_shape(layer_.scales, by_group ? Shape{groups, rows} : Shape{rows, groups}));
    if (layer_.zeros.entry != nullptr) {
      RETURN_IF_ERROR(check_shape(layer_.zeros, zeros));
    } else if (!layer_.scheme.symmetric) {
      return check_type(layer_.zeros, names_.zeros, "", 2);  // says that it is missing
    }
    return layer_.order.entry == nullptr ? Status{} : check_shape(layer_.order, {layer_.columns});
  }

  [[nodiscard]] Status check_shape(const Part& part, const Shape& wanted) const {
    return part.entry->shape == wanted
               ? Status{}
               : error(part,
                       fmt::format("has shape {}, but {} bits in {} groups of a matrix {} "
                                   "ask for {}; does config.json belong to it?",
                                   format_shape(part.entry->shape), layer_.scheme.bits,
                                   layer_.groups, format_shape(Shape{layer_.rows, layer_.columns}),
                                   format_shape(wanted)));
  }

  const Checkpoint& checkpoint_;
  const QuantizationConfig& config_;
  Names names_;
  std::string_view stem_;
  PackedLayer layer_;
};

}  // namespace

// compressed-tensors leaves it at -1 if columns are in order.
bool PackedLayer::has_unset_group(int64_t column) const {
  const bool may_be_unset = layout == Layout::kPacked || layout == Layout::kBytes;
  return may_be_unset && order_of(column) == -1;
}

int64_t PackedLayer::group_of(int64_t column) const {
  return has_unset_group(column) ? column / (columns / groups) : order_of(column);
}

int32_t PackedLayer::order_of(int64_t column) const {
  int32_t group = 0;
  std::memcpy(&group, order.data + column * 4, sizeof group);
  return group;
}

Result<std::map<std::string, PackedLayer>> find_packed_layers(const Checkpoint& checkpoint,
                                                              const QuantizationConfig& config) {
  std::map<std::string, PackedLayer> layers;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    for (const Layout layout : layouts_of(config.method)) {
      const std::string_view suffix = names_of(layout).values;
      const bool floats = layout == Layout::kBytes && tensor.entry->type.has_value();
      if (!name.ends_with(suffix) || floats) {
        continue;
      }
      const std::string stem = name.substr(0, name.size() - suffix.size());
      LayerReader reader(checkpoint, config, layout, stem);
      ASSIGN_OR_RETURN(const PackedLayer layer, reader.read());
      layers.emplace(stem, layer);
    }
  }
  if (layers.empty()) {
    return invalid_argument(fmt::format(
        "config.json says that the weights are quantised by {}, but no tensor is called *{}; "
        "download the model again, or remove quantization_config",
        method_name(config.method), names_of(layouts_of(config.method).front()).values));
  }
  return layers;
}

Status check_packed_layer(const Checkpoint& checkpoint, const PackedLayer& layer) {
  if (const Part& order = layer.order; order.entry != nullptr) {
    RETURN_IF_ERROR(checkpoint.load(order.file, order.entry->begin, order.entry->end));
    bool any_is_set = false;
    bool any_is_unset = false;
    for (int64_t column = 0; column < layer.columns; ++column) {
      const int64_t group = layer.group_of(column);
      if (group < 0 || group >= layer.groups) {
        return layer_error(checkpoint, order,
                           fmt::format("gives column {} the group {}, but there are {} groups; the "
                                       "file is broken",
                                       column, group, layer.groups));
      }
      (layer.has_unset_group(column) ? any_is_unset : any_is_set) = true;
    }
    if (any_is_set && any_is_unset) {
      return layer_error(checkpoint, order,
                         "gives some columns a group, and others -1; the file is broken");
    }
  }
  if (layer.zeros.entry != nullptr && layer.scheme.symmetric) {
    ASSIGN_OR_RETURN(const std::optional<OffMiddle> off, find_off_middle(checkpoint, layer));
    if (off) {
      return layer_error(checkpoint, layer.zeros,
                         fmt::format("has the zero point {} in row {}, but config.json says that "
                                     "the weights are symmetric, with {}; set sym or symmetric to "
                                     "false",
                                     off->zero, off->row, middle_of(layer)));
    }
  }
  return {};
}

}  // namespace tandem::model
