#include "model/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace tandem::model {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's own library
constexpr size_t kMaxDimensions = 8;
constexpr size_t kMaxNameBytes = 100;

struct Dtype {
  std::string_view name;
  int64_t bytes;
  std::optional<ElementType> type;
};
constexpr std::array<Dtype, 16> kDtypes{{{"F64", 8, std::nullopt},
                                         {"F32", 4, ElementType::kF32},
                                         {"F16", 2, ElementType::kF16},
                                         {"BF16", 2, ElementType::kBF16},
                                         {"I64", 8, std::nullopt},
                                         {"I32", 4, std::nullopt},
                                         {"I16", 2, std::nullopt},
                                         {"I8", 1, std::nullopt},
                                         {"U64", 8, std::nullopt},
                                         {"U32", 4, std::nullopt},
                                         {"U16", 2, std::nullopt},
                                         {"U8", 1, std::nullopt},
                                         {"BOOL", 1, std::nullopt},
                                         {"F8_E4M3", 1, std::nullopt},
                                         {"F8_E5M2", 1, std::nullopt},
                                         {"C64", 8, std::nullopt}}};

const Dtype* find_dtype(std::string_view name) {
  const auto* it = std::find_if(kDtypes.begin(), kDtypes.end(),
                                [&](const Dtype& dtype) { return dtype.name == name; });
  return it == kDtypes.end() ? nullptr : it;
}

// Names come from the file: short and printable in messages.
std::string shown_name(std::string_view name) {
  std::string text(name.substr(0, kMaxNameBytes));
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
  return name.size() > kMaxNameBytes ? text + "..." : text;
}

// Reads the header without building a document, so that a hostile one costs no more memory than its
// own size, and sees names that occur twice.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<TensorEntry> tensors;  // begin and end as written
  std::string problem;

  bool start_object(size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTop && metadata_next_) {
      place_ = Place::kMetadata;
    } else if (place_ == Place::kTop) {
      place_ = Place::kTensor;
      seen_ = {};
    } else {
      return fail("an object where none belongs");
    }
    return true;
  }
  bool end_object() override {
    if (place_ == Place::kTensor && !(seen_.dtype && seen_.shape && seen_.offsets)) {
      return fail(fmt::format("tensor '{}' lacks {}", shown_name(tensors.back().name),
                              !seen_.dtype   ? "dtype"
                              : !seen_.shape ? "shape"
                                             : "data_offsets"));
    }
    place_ = place_ == Place::kTop ? Place::kEnd : Place::kTop;
    return true;
  }
  bool key(string_t& text) override {
    if (place_ == Place::kTop) {
      metadata_next_ = text == "__metadata__";
      if (!metadata_next_) {
        tensors.emplace_back().name = text;
      }
    } else if (place_ == Place::kTensor) {
      field_ = text == "dtype"          ? Field::kDtype
               : text == "shape"        ? Field::kShape
               : text == "data_offsets" ? Field::kOffsets
                                        : Field::kUnknown;
      if (field_ == Field::kUnknown) {
        return fail(fmt::format("tensor '{}' has an unknown field '{}'",
                                shown_name(tensors.back().name), shown_name(text)));
      }
      bool& seen = field_ == Field::kDtype   ? seen_.dtype
                   : field_ == Field::kShape ? seen_.shape
                                             : seen_.offsets;
      if (std::exchange(seen, true)) {
        return fail(fmt::format("tensor '{}' gives {} twice", shown_name(tensors.back().name),
                                shown_name(text)));
      }
    }
    return true;
  }
  bool start_array(size_t) override {
    if (place_ != Place::kTensor || field_ == Field::kDtype) {
      return misplaced("a list");
    }
    place_ = Place::kList;
    numbers_.clear();
    return true;
  }
  bool end_array() override {
    place_ = Place::kTensor;
    TensorEntry& tensor = tensors.back();
    if (field_ == Field::kShape) {
      tensor.shape = numbers_;
    } else if (numbers_.size() == 2) {
      tensor.begin = numbers_[0];
      tensor.end = numbers_[1];
    } else {
      return fail(fmt::format("tensor '{}': data_offsets holds {} numbers, but must hold 2",
                              shown_name(tensor.name), numbers_.size()));
    }
    return true;
  }
  bool string(string_t& text) override {
    if (place_ == Place::kMetadata) {
      return true;
    }
    if (place_ != Place::kTensor || field_ != Field::kDtype) {
      return misplaced("a string");
    }
    tensors.back().dtype = text;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kList) {
      return misplaced("a number");
    }
    if (value > uint64_t{INT64_MAX}) {
      return fail(fmt::format("tensor '{}': {} is too large a number",
                              shown_name(tensors.back().name), value));
    }
    if (numbers_.size() == kMaxDimensions) {
      return fail(fmt::format("tensor '{}' has more than {} dimensions",
                              shown_name(tensors.back().name), kMaxDimensions));
    }
    numbers_.push_back(static_cast<int64_t>(value));
    return true;
  }
  bool number_integer(number_integer_t value) override {
    return misplaced(fmt::format("the negative number {}", value));
  }
  bool number_float(number_float_t value, const string_t&) override {
    return misplaced(fmt::format("the number {}", value));
  }
  bool null() override { return misplaced("null"); }
  bool boolean(bool value) override { return misplaced(value ? "true" : "false"); }
  bool binary(binary_t&) override { return misplaced("binary data"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    return fail(fmt::format("it is not valid JSON at byte {}", position));
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kList, kEnd };
  enum class Field { kUnknown, kDtype, kShape, kOffsets };
  struct Seen {
    bool dtype = false;
    bool shape = false;
    bool offsets = false;
  };

  bool fail(std::string text) {
    problem = std::move(text);
    return false;
  }
  bool misplaced(std::string_view what) {
    return fail(tensors.empty() || place_ == Place::kStart || place_ == Place::kMetadata
                    ? fmt::format("{} where none belongs", what)
                    : fmt::format("tensor '{}': {} where none belongs",
                                  shown_name(tensors.back().name), what));
  }

  Place place_ = Place::kStart;
  Field field_ = Field::kUnknown;
  Seen seen_;
  bool metadata_next_ = false;
  std::vector<int64_t> numbers_;
};

Error broken(std::string_view file, std::string_view cause) {
  return invalid_argument(fmt::format(
      "{}: the safetensors header is broken: {}; download or convert the file again", file, cause));
}

// Bytes that the shape needs, or nullopt where they do not fit 63 bits.
std::optional<int64_t> shape_bytes(std::span<const int64_t> shape, int64_t element_size) {
  int64_t bytes = element_size;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    return 0;
  }
  for (const int64_t dimension : shape) {
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

// Turns offsets into positions in the file and checks the tensor against it.
std::string place_tensor(TensorEntry& tensor, int64_t data_begin, int64_t file_bytes) {
  const int64_t data_bytes = file_bytes - data_begin;
  if (tensor.begin > tensor.end || tensor.end > data_bytes) {
    return fmt::format("its data_offsets [{}, {}] do not lie in the {} bytes of data{}",
                       tensor.begin, tensor.end, data_bytes,
                       tensor.begin <= tensor.end ? " (is the file cut short?)" : "");
  }
  if (const Dtype* dtype = find_dtype(tensor.dtype); dtype != nullptr) {
    tensor.type = dtype->type;
    const std::optional<int64_t> needed = shape_bytes(tensor.shape, dtype->bytes);
    if (!needed || *needed != tensor.bytes()) {
      return fmt::format("its shape {} of {} needs {} bytes, but data_offsets give {}",
                         format_shape(tensor.shape), tensor.dtype,
                         needed ? std::to_string(*needed) : "more than 2^63", tensor.bytes());
    }
  }
  tensor.begin += data_begin;
  tensor.end += data_begin;
  return {};
}

std::string find_duplicate(const std::vector<TensorEntry>& tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorEntry& tensor : tensors) {
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  return twice == names.end() ? "" : fmt::format("tensor '{}' occurs twice", shown_name(*twice));
}

// `tensors` by offset.
std::string find_overlap(const std::vector<TensorEntry>& tensors) {
  const TensorEntry* last = nullptr;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.bytes() == 0) {
      continue;
    }
    if (last != nullptr && tensor.begin < last->end) {
      return fmt::format("tensors '{}' and '{}' overlap", shown_name(last->name),
                         shown_name(tensor.name));
    }
    last = &tensor;
  }
  return {};
}

}  // namespace

std::string format_shape(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<std::vector<TensorEntry>> parse_safetensors_header(std::span<const std::byte> file,
                                                          std::string_view name) {
  const auto file_bytes = static_cast<int64_t>(file.size());
  if (file_bytes < kLengthBytes) {
    return broken(name, fmt::format("the file has only {} bytes", file_bytes));
  }
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < size_t{kLengthBytes}; ++i) {
    header_bytes |= std::to_integer<uint64_t>(file[i]) << (8 * i);
  }
  if (header_bytes > kMaxHeaderBytes) {
    return broken(name, fmt::format("it claims {} bytes of header, more than the {} allowed",
                                    header_bytes, kMaxHeaderBytes));
  }
  const auto data_begin = kLengthBytes + static_cast<int64_t>(header_bytes);
  if (data_begin > file_bytes) {
    return broken(name, fmt::format("it claims {} bytes of header, but the file has {} in all",
                                    header_bytes, file_bytes));
  }
  const auto* text = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(text, text + header_bytes, &reader)) {
    return broken(name, reader.problem);
  }
  for (TensorEntry& tensor : reader.tensors) {
    const std::string problem = place_tensor(tensor, data_begin, file_bytes);
    if (!problem.empty()) {
      return broken(name, fmt::format("tensor '{}': {}", shown_name(tensor.name), problem));
    }
  }
  std::stable_sort(reader.tensors.begin(), reader.tensors.end(),
                   [](const TensorEntry& a, const TensorEntry& b) { return a.begin < b.begin; });
  for (const std::string& problem :
       {find_duplicate(reader.tensors), find_overlap(reader.tensors)}) {
    if (!problem.empty()) {
      return broken(name, problem);
    }
  }
  return std::move(reader.tensors);
}

}  // namespace tandem::model
