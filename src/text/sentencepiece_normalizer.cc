#include "text/sentencepiece_normalizer.h"

#include <cstdint>
#include <optional>

namespace tandem::text {
namespace {

// Fields of the library's ModelProto and of its NormalizerSpec.
constexpr uint64_t kNormalizerSpec = 3;
constexpr uint64_t kPrecompiledCharsmap = 2;
constexpr uint64_t kRemoveExtraWhitespaces = 4;

struct Field {
  uint64_t number = 0;
  uint64_t integer = 0;    // of a varint
  std::string_view bytes;  // of a string or message
};

std::optional<uint64_t> take_varint(std::string_view& in) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(in.front());
    in.remove_prefix(1);
    value |= uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) {
      return value;
    }
  }
  return std::nullopt;
}

// The next field of a message in protobuf's encoding.
std::optional<Field> take_field(std::string_view& in) {
  const std::optional<uint64_t> tag = take_varint(in);
  if (!tag) {
    return std::nullopt;
  }
  Field field{.number = *tag >> 3, .integer = 0, .bytes = {}};
  uint64_t bytes = 0;
  switch (*tag & 7) {
    case 0: {
      const std::optional<uint64_t> value = take_varint(in);
      field.integer = value.value_or(0);
      return value ? std::optional(field) : std::nullopt;
    }
    case 1:
      bytes = 8;
      break;
    case 2: {
      const std::optional<uint64_t> length = take_varint(in);
      if (!length) {
        return std::nullopt;
      }
      bytes = *length;
      break;
    }
    case 5:
      bytes = 4;
      break;
    default:
      return std::nullopt;
  }
  if (bytes > in.size()) {
    return std::nullopt;
  }
  field.bytes = in.substr(0, bytes);
  in.remove_prefix(bytes);
  return field;
}

}  // namespace

bool keeps_every_byte(std::string_view model) {
  bool replaces = false;
  bool removes_spaces = true;  // what a model without the field does
  while (!model.empty()) {
    const std::optional<Field> field = take_field(model);
    if (!field) {
      return false;
    }
    if (field->number != kNormalizerSpec) {
      continue;
    }
    std::string_view spec = field->bytes;
    while (!spec.empty()) {
      const std::optional<Field> inner = take_field(spec);
      if (!inner) {
        return false;
      }
      if (inner->number == kPrecompiledCharsmap) {
        replaces = !inner->bytes.empty();
      } else if (inner->number == kRemoveExtraWhitespaces) {
        removes_spaces = inner->integer != 0;
      }
    }
  }
  return !replaces && !removes_spaces;
}

}  // namespace tandem::text
