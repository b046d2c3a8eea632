// For the tests of this folder: folders that vanish, and safetensors files made by hand.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/element_type.h"
#include "model/weight_source.h"

namespace tandem::model {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "tandem-model-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_all(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  std::string file;
  for (size_t i = 0; i < 8; ++i) {
    file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  }
  return file.append(header).append(data);
}

struct HandTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
  ElementType type = ElementType::kF32;
};

// The values must be exact in the type, and in fp16 normal or zero.
inline std::string encode(std::span<const float> values, ElementType type) {
  std::string bytes;
  for (const float value : values) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    if (type == ElementType::kBF16) {
      bits = f32_to_bf16(value);
    } else if (type == ElementType::kF16) {
      const uint32_t magnitude = bits & 0x7fffffffU;
      bits = (bits >> 16 & 0x8000U) |
             (magnitude == 0            ? 0U
              : magnitude >= 0x7f800000 ? 0x7c00U | (magnitude > 0x7f800000 ? 1U : 0U)
                                        : (magnitude >> 13) - (112U << 10));
    }
    bytes.append(reinterpret_cast<const char*>(&bits), static_cast<size_t>(element_bytes(type)));
  }
  return bytes;
}

// Tensors one behind the other; `padding` spaces behind the header move the data to any alignment.
inline std::string safetensors_of(std::span<const HandTensor> tensors, size_t padding = 0) {
  std::string header = "{";
  std::string data;
  for (const HandTensor& tensor : tensors) {
    const std::string bytes = encode(tensor.values, tensor.type);
    std::string shape;
    for (const int64_t dimension : tensor.shape) {
      shape += (shape.empty() ? "" : ",") + std::to_string(dimension);
    }
    header += (header.size() == 1 ? "\"" : ",\"") + tensor.name + "\":{\"dtype\":\"" +
              (tensor.type == ElementType::kF32    ? "F32"
               : tensor.type == ElementType::kBF16 ? "BF16"
                                                   : "F16") +
              "\",\"shape\":[" + shape + "],\"data_offsets\":[" + std::to_string(data.size()) +
              "," + std::to_string(data.size() + bytes.size()) + "]}";
    data += bytes;
  }
  header += "}" + std::string(padding, ' ');
  return safetensors_bytes(header, data);
}

// Tensors in this process's memory, one behind the other in one "file".
class SourceInMemory final : public WeightSource {
 public:
  explicit SourceInMemory(const std::map<std::string, HandTensor>& tensors) {
    entries_.reserve(tensors.size());
    for (const auto& [name, tensor] : tensors) {
      const auto begin = static_cast<int64_t>(bytes_.size());
      bytes_ += encode(tensor.values, tensor.type);
      entries_.push_back({.name = name,
                          .dtype = std::string(element_name(tensor.type)),
                          .type = tensor.type,
                          .shape = tensor.shape,
                          .begin = begin,
                          .end = static_cast<int64_t>(bytes_.size())});
    }
    for (const TensorEntry& entry : entries_) {
      tensors_[entry.name] = {&entry, 0};
    }
  }
  [[nodiscard]] const std::map<std::string, Tensor, std::less<>>& tensors() const override {
    return tensors_;
  }
  [[nodiscard]] std::string_view file_name(int32_t) const override { return "memory"; }
  [[nodiscard]] std::string name_in_file(std::string_view tensor) const override {
    return std::string(tensor);
  }
  [[nodiscard]] const std::byte* data(int32_t, int64_t offset) const override {
    return reinterpret_cast<const std::byte*>(bytes_.data()) + offset;
  }
  void will_need(int32_t, int64_t, int64_t) const override {}
  [[nodiscard]] Status load(int32_t, int64_t, int64_t end) const override {
    return end <= readable_bytes ? Status{} : Error{ErrorCode::kIo, "cut short", ""};
  }
  void release(int32_t, int64_t, int64_t) const override {}

  // What a source says of a tensor, to be made wrong.
  [[nodiscard]] TensorEntry& entry(std::string_view name) {
    return *std::find_if(entries_.begin(), entries_.end(),
                         [&](const TensorEntry& entry) { return entry.name == name; });
  }

  int64_t readable_bytes = std::numeric_limits<int64_t>::max();

 private:
  std::string bytes_;
  std::vector<TensorEntry> entries_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace tandem::model
