// The key-value pairs of a GGUF file, read on demand from its bytes, which must outlive them. Every
// error names the file and the key, what it holds and what would do. Immutable; any thread.
//
// A key that is absent is nullopt. Integers of every width and sign are one kind; so are fp32 and
// fp64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::gguf {

// The values are those of the file format.
enum class ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// Bytes of a value of fixed size; 0 of a string, an array and a number that is no type.
int64_t value_bytes(ValueType type);

// A value as it lies in the file. `count` values of type `element` one behind the other: one,
// unless it is an array; a string is 8 bytes of length and its bytes.
struct Value {
  bool is_array = false;
  ValueType element = ValueType::kUint8;
  uint64_t count = 1;
  std::span<const std::byte> bytes;
};

class Metadata {
 public:
  explicit Metadata(std::string file) : file_(std::move(file)) {}

  // Returns false and changes nothing if the key is there already.
  bool add(std::string key, const Value& value) {
    return values_.emplace(std::move(key), value).second;
  }

  [[nodiscard]] bool has(std::string_view key) const { return values_.contains(key); }
  [[nodiscard]] Result<std::optional<int64_t>> integer(std::string_view key) const;
  [[nodiscard]] Result<std::optional<double>> number(std::string_view key) const;
  [[nodiscard]] Result<std::optional<bool>> boolean(std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::string>> string(std::string_view key) const;
  // A single value counts as a list of one.
  [[nodiscard]] Result<std::optional<std::vector<int64_t>>> integers(std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::vector<float>>> numbers(std::string_view key) const;
  // The texts lie in the file.
  [[nodiscard]] Result<std::optional<std::vector<std::string_view>>> strings(
      std::string_view key) const;

  // "FILE: key 'KEY' MESSAGE".
  [[nodiscard]] Error error(std::string_view key, std::string_view message) const;
  [[nodiscard]] Error unsupported(std::string_view key, std::string_view message) const;
  [[nodiscard]] const std::string& file() const { return file_; }

 private:
  [[nodiscard]] const Value* find(std::string_view key) const;
  [[nodiscard]] Error wrong_type(std::string_view key, std::string_view wanted) const;
  template <class Convert>
  [[nodiscard]] auto single(std::string_view key, const Convert& convert,
                            std::string_view wanted) const;
  template <class Convert>
  [[nodiscard]] auto list(std::string_view key, const Convert& convert,
                          std::string_view wanted) const;

  std::string file_;
  std::map<std::string, Value, std::less<>> values_;
};

// For errors: what a file holds as a name, without control characters and not too long.
std::string shown(std::string_view text);

}  // namespace tandem::gguf
