// Matrices as a checkpoint holds them, for the tests of matrix products; a product with a guarded
// scratch. Test code, any thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <ostream>
#include <vector>

#include "families.h"
#include "kernels/kernels.h"
#include "kernels/quantize.h"

namespace tandem::kernels {

// How a weight is stored, and beside a quantised one the type of x.
struct Stored {
  ElementType type = ElementType::kBF16;
  Quantization quantization = Quantization::kNone;
  constexpr Stored(ElementType its_type,  // NOLINT(google-explicit-constructor): most are not
                   Quantization its_quantization = Quantization::kNone)
      : type(its_type), quantization(its_quantization) {}
};
inline void PrintTo(const Stored& stored, std::ostream* out) {
  *out << element_name(stored.type) << " " << quantization_name(stored.quantization);
}

// What a family multiplies.
inline std::vector<Stored> stored_of(const Family& family) {
  std::vector<Stored> all = {ElementType::kF32, ElementType::kBF16};
  if (family.isa) {
    for (const Quantization quantization : kQuantizations) {
      if (quantization != Quantization::kNone) {
        all.emplace_back(ElementType::kBF16, quantization);
      }
    }
  }
  return all;
}

// A checkpoint matrix [n.logical, k.logical] of `type`, with its values in padded coordinates.
struct Source {
  PaddedDim n;
  PaddedDim k;
  ElementType type;
  std::vector<std::byte> bytes;
  std::vector<float> padded;  // [n.padded(), k.padded()], as the target holds them
};

// Rounds padded rows to what quantised weights hold.
inline void quantize(Quantization quantization, std::vector<float>& padded) {
  for (size_t at = 0; at < padded.size(); at += kQuantizedGroup) {
    float values[kQuantizedGroup];
    std::copy_n(padded.begin() + static_cast<ptrdiff_t>(at), kQuantizedGroup, values);
    const QuantizedGroup group = quantize_group(quantization, values);
    for (size_t i = 0; i < kQuantizedGroup; ++i) {
      padded[at + i] = group.element(static_cast<int64_t>(i));
    }
  }
}

inline uint16_t f16_bits(Random& random) {  // any finite half of moderate size, some subnormal
  const auto exponent = static_cast<uint16_t>(pick(random, 0, 15));
  return static_cast<uint16_t>(pick(random, 0, 1) << 15 | exponent << 10 | pick(random, 0, 1023));
}

inline Source make_source(Random& random, PaddedDim n, PaddedDim k, ElementType type,
                          Stored target) {
  Source source{n, k, type, {}, {}};
  source.bytes.resize(static_cast<size_t>(n.logical * k.logical * element_bytes(type)));
  source.padded.assign(static_cast<size_t>(n.padded() * k.padded()), 0.0F);
  for (int64_t row = 0; row < n.logical; ++row) {
    for (int64_t depth = 0; depth < k.logical; ++depth) {
      const int64_t i = row * k.logical + depth;
      float value = uniform(random, -1.0F, 1.0F);
      if (type == ElementType::kF16) {
        const uint16_t bits = f16_bits(random);
        std::memcpy(source.bytes.data() + i * 2, &bits, 2);
        value = f16_to_f32(bits);
      } else {
        put(source.bytes.data(), type, i, value);
        value = get(source.bytes.data(), type, i);
      }
      const int64_t at_n = row / n.group * n.padded_group + row % n.group;
      const int64_t at_k = depth / k.group * k.padded_group + depth % k.group;
      const bool rounded =
          target.type == ElementType::kBF16 && target.quantization == Quantization::kNone;
      source.padded[static_cast<size_t>(at_n * k.padded() + at_k)] =
          rounded ? bf16_to_f32(f32_to_bf16(value)) : value;
    }
  }
  if (target.quantization != Quantization::kNone) {
    quantize(target.quantization, source.padded);
  }
  return source;
}

inline PaddedDim whole(int64_t logical) { return {logical, logical, round_up(logical, 32)}; }

enum class RowsOfX : uint8_t { kAsTheyAre, kPrepared };

inline void run(const Kernels& kernels, GemmArgs args, int64_t panel_begin, int64_t panel_end,
                RowsOfX rows_of_x) {
  const bool prepares = rows_of_x == RowsOfX::kPrepared;
  Guarded<std::byte> prepared(prepares ? kernels.prepared_bytes(args) : 0);
  if (prepared.size() > 0) {
    const int64_t some = args.rows / 3;
    kernels.prepare(args, some, args.rows, prepared.data());
    kernels.prepare(args, 0, some, prepared.data());
    args.prepared = prepared.data();
  }
  Guarded<std::byte> scratch(kernels.gemm_scratch_bytes(args));
  kernels.gemm(args, panel_begin, panel_end, scratch.data());
  EXPECT_TRUE(scratch.guards_intact());
  EXPECT_TRUE(prepared.guards_intact());
}

// Where a family prepares rows, both ways must give the same bits.
inline void run(const Kernels& kernels, const GemmArgs& args, int64_t panel_begin,
                int64_t panel_end) {
  const bool activates = args.store == GemmStore::kSiluMul;
  auto* y =
      activates ? static_cast<std::byte*>(args.activated) : reinterpret_cast<std::byte*>(args.y);
  const int64_t columns = activates ? args.w.n / 2 : args.w.n;
  const int64_t bytes = args.rows <= 0 ? 0
                                       : ((args.rows - 1) * args.y_stride + columns) *
                                             (activates ? element_bytes(args.w.type) : 4);
  const std::vector<std::byte> before(y, y + bytes);
  run(kernels, args, panel_begin, panel_end, RowsOfX::kAsTheyAre);
  if (kernels.prepared_bytes(args) == 0) {
    return;
  }
  const std::vector<std::byte> after(y, y + bytes);
  std::copy(before.begin(), before.end(), y);
  run(kernels, args, panel_begin, panel_end, RowsOfX::kPrepared);
  EXPECT_EQ(std::memcmp(y, after.data(), after.size()), 0) << args.rows << " prepared rows";
}

}  // namespace tandem::kernels
