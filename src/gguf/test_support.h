// For tests: GGUF files made by hand.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/blocks.h"
#include "gguf/metadata.h"

namespace tandem::gguf {

// Puts the bytes of a file together. Values are written as given: what a test wants wrong is wrong.
class FileBuilder {
 public:
  FileBuilder& integer(std::string_view key, int64_t value) {
    return pair(key, ValueType::kUint32, number_bytes(static_cast<uint32_t>(value)));
  }
  FileBuilder& number(std::string_view key, float value) {
    return pair(key, ValueType::kFloat32, number_bytes(value));
  }
  FileBuilder& boolean(std::string_view key, bool value) {
    return pair(key, ValueType::kBool, number_bytes(static_cast<uint8_t>(value)));
  }
  FileBuilder& string(std::string_view key, std::string_view value) {
    return pair(key, ValueType::kString, string_bytes(value));
  }
  FileBuilder& strings(std::string_view key, std::span<const std::string> values) {
    std::string bytes;
    for (const std::string& value : values) {
      bytes += string_bytes(value);
    }
    return array(key, ValueType::kString, values.size(), bytes);
  }
  template <class T>
  FileBuilder& numbers(std::string_view key, ValueType type, const std::vector<T>& values) {
    std::string bytes;
    for (const T& value : values) {
      bytes += number_bytes(value);
    }
    return array(key, type, values.size(), bytes);
  }
  FileBuilder& array(std::string_view key, ValueType type, uint64_t count, std::string_view bytes) {
    return pair(
        key, ValueType::kArray,
        number_bytes(static_cast<uint32_t>(type)) + number_bytes(count) + std::string(bytes));
  }
  FileBuilder& pair(std::string_view key, ValueType type, std::string_view bytes) {
    pairs_ += string_bytes(key) + number_bytes(static_cast<uint32_t>(type)) + std::string(bytes);
    ++pair_count_;
    return *this;
  }
  // `shape` slowest first. The data lie behind those of the tensor before, at a multiple of 32.
  FileBuilder& tensor(std::string_view name, const std::vector<int64_t>& shape, uint32_t type,
                      std::string_view data) {
    data_.resize((data_.size() + 31) / 32 * 32);
    tensor_at(name, shape, type, data_.size());
    data_ += data;
    return *this;
  }
  FileBuilder& floats(std::string_view name, const std::vector<int64_t>& shape,
                      const std::vector<float>& values) {
    std::string bytes;
    for (const float value : values) {
      bytes += number_bytes(value);
    }
    return tensor(name, shape, 0, bytes);
  }
  // The entry alone, of data at `offset`.
  FileBuilder& tensor_at(std::string_view name, const std::vector<int64_t>& shape, uint32_t type,
                         uint64_t offset) {
    tensors_ += string_bytes(name) + number_bytes(static_cast<uint32_t>(shape.size()));
    for (size_t i = shape.size(); i-- > 0;) {
      tensors_ += number_bytes(static_cast<uint64_t>(shape[i]));
    }
    tensors_ += number_bytes(type) + number_bytes(offset);
    ++tensor_count_;
    return *this;
  }

  [[nodiscard]] std::string bytes() const {
    std::string file = "GGUF" + number_bytes(uint32_t{3}) + number_bytes(tensor_count_) +
                       number_bytes(pair_count_) + pairs_ + tensors_;
    file.resize((file.size() + 31) / 32 * 32);
    return file + data_;
  }

  template <class T>
  static std::string number_bytes(T value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
  }
  static std::string string_bytes(std::string_view value) {
    return number_bytes(uint64_t{value.size()}) + std::string(value);
  }

 private:
  std::string pairs_;
  std::string tensors_;
  std::string data_;
  uint64_t pair_count_ = 0;
  uint64_t tensor_count_ = 0;
};

}  // namespace tandem::gguf
