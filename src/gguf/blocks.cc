#include "gguf/blocks.h"

#include <fmt/format.h>

#include <array>

namespace tandem::gguf {
namespace {

struct NamedType {
  uint32_t number;
  std::string_view name;
  BlockShape shape;  // of the supported types
};

constexpr std::array<NamedType, 34> kTypes = {
    {{0, "F32", {1, 4}},       {1, "F16", {1, 2}},       {2, "Q4_0", {32, 18}},
     {3, "Q4_1", {32, 20}},    {6, "Q5_0", {32, 22}},    {7, "Q5_1", {32, 24}},
     {8, "Q8_0", {32, 34}},    {9, "Q8_1", {}},          {10, "Q2_K", {}},
     {11, "Q3_K", {}},         {12, "Q4_K", {256, 144}}, {13, "Q5_K", {256, 176}},
     {14, "Q6_K", {256, 210}}, {15, "Q8_K", {}},         {16, "IQ2_XXS", {}},
     {17, "IQ2_XS", {}},       {18, "IQ3_XXS", {}},      {19, "IQ1_S", {}},
     {20, "IQ4_NL", {}},       {21, "IQ3_S", {}},        {22, "IQ2_S", {}},
     {23, "IQ4_XS", {}},       {24, "I8", {}},           {25, "I16", {}},
     {26, "I32", {}},          {27, "I64", {}},          {28, "F64", {}},
     {29, "IQ1_M", {}},        {30, "BF16", {1, 2}},     {34, "TQ1_0", {}},
     {35, "TQ2_0", {}},        {39, "MXFP4", {}},        {40, "NVFP4", {}},
     {41, "Q1_0", {}}}};

const NamedType* find_type(uint32_t number) {
  for (const NamedType& type : kTypes) {
    if (type.number == number) {
      return &type;
    }
  }
  return nullptr;
}

}  // namespace

std::optional<BlockType> block_type(uint32_t number) {
  const NamedType* type = find_type(number);
  return type != nullptr && type->shape.bytes > 0 ? std::optional(static_cast<BlockType>(number))
                                                  : std::nullopt;
}

BlockShape block_shape(BlockType type) { return find_type(static_cast<uint32_t>(type))->shape; }

std::string type_name(uint32_t number) {
  const NamedType* type = find_type(number);
  return type != nullptr ? std::string(type->name) : fmt::format("type {}", number);
}

std::string_view supported_types() {
  return "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K";
}

}  // namespace tandem::gguf
