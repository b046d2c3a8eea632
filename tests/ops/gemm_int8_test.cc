// Products of quantised weights with activations rounded to int8: every family gives the bits of
// the reference, which lies within the bound of rounding around sums of the true activations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "families.h"
#include "gemm_sources.h"
#include "kernels/kernels.h"
#include "kernels/portable/portable.h"
#include "kernels/quantize.h"

namespace tandem::kernels {
namespace {

constexpr Quantization kRoundedTo[] = {Quantization::kInt8, Quantization::kInt4,
                                       Quantization::kInt4Symmetric};

// x, bias and y of one product; sources are packed for each family.
struct Int8Product {
  Source source;
  Guarded<std::byte> x;
  std::vector<float> bias;
  std::vector<float> before;  // of y
  GemmArgs args;              // without w, bias and y
};

// Rows with groups of all sizes: of zeros, too small to count, and with a number that dominates.
void fill_rows(Random& random, Int8Product& product, int64_t k) {
  for (int64_t row = 0; row < product.args.rows; ++row) {
    for (int64_t group = 0; group < k; group += kQuantizedGroup) {
      const int64_t kind = pick(random, 0, 9);
      const float range = kind == 0   ? 0.0F
                          : kind == 1 ? 1e-25F
                          : kind == 2 ? 1e-6F
                          : kind == 3 ? 300.0F
                                      : 1.0F;
      for (int64_t i = group; i < group + kQuantizedGroup; ++i) {
        put(product.x.data(), ElementType::kBF16, row * product.args.x_stride + i,
            range * uniform(random, -1.0F, 1.0F));
      }
      if (kind == 4) {
        put(product.x.data(), ElementType::kBF16,
            row * product.args.x_stride + group + pick(random, 0, 31), 50.0F);
      }
    }
  }
}

Int8Product make_product(Random& random, int64_t rows, PaddedDim n, PaddedDim k,
                         Quantization quantization) {
  const int64_t stride = spread_stride(k.padded(), ElementType::kBF16);
  Int8Product product{
      make_source(random, n, k, ElementType::kBF16, {ElementType::kBF16, quantization}),
      Guarded<std::byte>(rows * stride * 2),
      {},
      {},
      {}};
  product.args.x = product.x.data();
  product.args.x_stride = stride;
  product.args.rows = rows;
  product.args.y_stride = n.padded() + 3;
  fill_rows(random, product, k.padded());
  for (int64_t i = 0; i < n.padded(); ++i) {
    product.bias.push_back(uniform(random, -1.0F, 1.0F));
  }
  for (int64_t i = 0; i < rows * product.args.y_stride; ++i) {
    product.before.push_back(uniform(random, -4.0F, 4.0F));
  }
  return product;
}

PackedMatrix pack_for(const Kernels& kernels, const Source& source, Quantization quantization,
                      Guarded<std::byte>& memory) {
  PackedMatrix matrix{.data = memory.data(),
                      .n = source.n.padded(),
                      .k = source.k.padded(),
                      .quantization = quantization,
                      .activations = Activations::kInt8};
  kernels.pack({.source = source.bytes.data(),
                .source_type = source.type,
                .n = source.n,
                .k = source.k,
                .target = matrix,
                .target_data = memory.data()},
               0, matrix.panels());
  return matrix;
}

int64_t packed_bytes(const Source& source, Quantization quantization) {
  return PackedMatrix{.n = source.n.padded(), .k = source.k.padded(), .quantization = quantization}
      .bytes();
}

// y of rows [begin, end) by a family.
std::vector<float> results_of(const Kernels& kernels, const Int8Product& product,
                              Quantization quantization, GemmStore store, int64_t begin,
                              int64_t end) {
  Guarded<std::byte> memory(packed_bytes(product.source, quantization));
  GemmArgs args = product.args;
  args.w = pack_for(kernels, product.source, quantization, memory);
  args.x = product.x.data() + begin * args.x_stride * 2;
  args.rows = end - begin;
  Guarded<float> y(args.rows * args.y_stride);
  std::copy(product.before.begin() + begin * args.y_stride,
            product.before.begin() + end * args.y_stride, y.data());
  args.y = y.data();
  args.bias = product.bias.data();
  args.store = store;
  run(kernels, args, args.w.panels() / 2, args.w.panels());
  run(kernels, args, 0, args.w.panels() / 2);
  EXPECT_TRUE(y.guards_intact());
  return {y.data(), y.data() + y.size()};
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

class Int8Gemm : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!can_run(GetParam())) {
      GTEST_SKIP() << "this machine has no " << isa_name(GetParam()) << ": not tested";
    }
    kernels_ = &table_of(GetParam());
  }
  const Kernels* kernels_ = nullptr;
  Random random_{66};
};

TEST_P(Int8Gemm, ResultsHaveTheBitsOfTheReference) {
  struct Shape {
    int64_t rows, n, k;
  };
  for (const Shape shape : {Shape{1, 40, 64}, Shape{5, 96, 172}, Shape{6, 33, 2080},
                            Shape{7, 64, 416}, Shape{13, 100, 32}, Shape{110, 64, 1056}}) {
    for (const Quantization quantization : kRoundedTo) {
      const Int8Product product =
          make_product(random_, shape.rows, whole(shape.n), whole(shape.k), quantization);
      for (const GemmStore store : {GemmStore::kWrite, GemmStore::kAdd}) {
        EXPECT_TRUE(
            same_bits(results_of(*kernels_, product, quantization, store, 0, shape.rows),
                      results_of(table_of(Isa::kRef), product, quantization, store, 0, shape.rows)))
            << shape.rows << " x " << shape.n << " x " << shape.k << " "
            << quantization_name(quantization);
      }
    }
  }
}

// Processors without products of bytes take the sums of portable kernels.
TEST_P(Int8Gemm, PortableKernelsGiveTheSameBits) {
  if (GetParam() == Isa::kRef) {
    GTEST_SKIP() << "the reference has no vectors";
  }
  Kernels portable = *kernels_;
  portable::fill_gemm(
      GetParam() == Isa::kAvx2 || GetParam() == Isa::kNeon ? GetParam() : Isa::kAvx512, portable);
  for (const Quantization quantization : kRoundedTo) {
    for (const int64_t rows : {1, 7, 30}) {
      const Int8Product product = make_product(random_, rows, whole(96), whole(1056), quantization);
      EXPECT_TRUE(same_bits(results_of(portable, product, quantization, GemmStore::kAdd, 0, rows),
                            results_of(*kernels_, product, quantization, GemmStore::kAdd, 0, rows)))
          << rows << " " << quantization_name(quantization);
    }
  }
}

TEST_P(Int8Gemm, ARowDoesNotDependOnTheNumberOfRows) {
  for (const Quantization quantization : kRoundedTo) {
    const Int8Product product = make_product(
        random_, 203, whole(64), whole(GetParam() == Isa::kRef ? 64 : 2080), quantization);
    const auto all = results_of(*kernels_, product, quantization, GemmStore::kAdd, 0, 203);
    for (const auto& [begin, end] :
         {std::pair<int64_t, int64_t>{0, 1}, {3, 7}, {90, 110}, {202, 203}}) {
      const auto part = results_of(*kernels_, product, quantization, GemmStore::kAdd, begin, end);
      EXPECT_EQ(std::memcmp(part.data(), all.data() + begin * product.args.y_stride,
                            part.size() * sizeof(float)),
                0)
          << "rows " << begin << " .. " << end;
    }
  }
}

// The error of each activation is at most 1.001 / 254 of the largest of its group.
TEST_P(Int8Gemm, ErrorsStayWithinTheRoundingOfActivations) {
  for (const Quantization quantization : kRoundedTo) {
    const Int8Product product = make_product(random_, 9, whole(64), whole(544), quantization);
    const auto got = results_of(*kernels_, product, quantization, GemmStore::kWrite, 0, 9);
    const int64_t k = product.source.k.padded();
    for (int64_t row = 0; row < 9; ++row) {
      for (int64_t n = 0; n < 64; ++n) {
        double sum = product.bias[static_cast<size_t>(n)];
        double bound = 0.0;
        double magnitude = std::fabs(sum);
        for (int64_t group = 0; group < k; group += kQuantizedGroup) {
          double largest = 0.0;
          double weights = 0.0;
          for (int64_t i = group; i < group + kQuantizedGroup; ++i) {
            const double x =
                get(product.x.data(), ElementType::kBF16, row * product.args.x_stride + i);
            const double w = product.source.padded[static_cast<size_t>(n * k + i)];
            sum += x * w;
            magnitude += std::fabs(x * w);
            largest = std::max(largest, std::fabs(x));
            weights += std::fabs(w);
          }
          bound += largest * 1.001 / 254 * weights;
        }
        const double value = got[static_cast<size_t>(row * product.args.y_stride + n)];
        ASSERT_LE(std::fabs(value - sum), bound + 1e-5 * magnitude + 1e-20)
            << "row " << row << " column " << n;
      }
    }
  }
}

// Column n holds the smallest integer in some depths and the largest in the others, x likewise.
TEST_P(Int8Gemm, TheLargestSumsAreExact) {
  constexpr int64_t kDepth = 64;
  constexpr int64_t kRows = 8;
  const auto upper = [](int64_t i, int64_t k) { return i == 7 || (k >> i & 1) != 0; };
  for (const Quantization quantization : kRoundedTo) {
    const bool wide = quantization == Quantization::kInt8;
    const int min = wide ? -128 : quantization == Quantization::kInt4 ? 0 : -8;
    const int max = wide ? 127 : min + 15;
    std::vector<QuantizedGroup> groups(32 * kDepth / kQuantizedGroup);
    for (int64_t at = 0; at < 32 * kDepth; ++at) {
      QuantizedGroup& group = groups[static_cast<size_t>(at / kQuantizedGroup)];
      group.scale = f32_to_f16(1.0F);
      group.values[at % kQuantizedGroup] =
          static_cast<int8_t>(upper(at / kDepth % 8, at % kDepth) ? max : min);
    }
    Guarded<std::byte> memory(
        PackedMatrix{.n = 32, .k = kDepth, .quantization = quantization}.bytes());
    GemmArgs args;
    args.w = {.data = memory.data(),
              .n = 32,
              .k = kDepth,
              .quantization = quantization,
              .activations = Activations::kInt8};
    kernels_->pack({.source = groups.data(),
                    .source_quantization = quantization,
                    .n = whole(32),
                    .k = whole(kDepth),
                    .target = args.w,
                    .target_data = memory.data()},
                   0, 1);
    Guarded<BFloat16> x(kRows * kDepth);
    for (int64_t at = 0; at < kRows * kDepth; ++at) {
      x[at] = f32_to_bf16(upper(at / kDepth, at % kDepth) ? 1.0F : -1.0F);
    }
    Guarded<float> y(kRows * 32);
    args.x = x.data();
    args.x_stride = kDepth;
    args.rows = kRows;
    args.y = y.data();
    args.y_stride = 32;
    run(*kernels_, args, 0, 1);
    for (int64_t at = 0; at < kRows * 32; ++at) {
      int sum = 0;
      for (int64_t k = 0; k < kDepth; ++k) {
        sum += (upper(at % 8, k) ? max : min) * (upper(at / 32, k) ? 1 : -1);
      }
      EXPECT_NEAR(y[at], sum, 1e-6 * kDepth * max) << quantization_name(quantization) << " " << at;
    }
  }
}

// SiLU(gate) * up of panels in turn is that of the products themselves.
TEST_P(Int8Gemm, ActivatedRowsAreThoseOfTheProducts) {
  for (const Quantization quantization : kRoundedTo) {
    Int8Product plain = make_product(random_, 14, whole(128), whole(160), quantization);
    std::fill(plain.bias.begin(), plain.bias.end(), 0.0F);
    const auto sums = results_of(*kernels_, plain, quantization, GemmStore::kWrite, 0, 14);
    Guarded<std::byte> memory(packed_bytes(plain.source, quantization));
    GemmArgs args = plain.args;
    args.w = pack_for(*kernels_, plain.source, quantization, memory);
    Guarded<BFloat16> y(14 * 64);
    args.activated = y.data();
    args.y_stride = 64;
    args.store = GemmStore::kSiluMul;
    run(*kernels_, args, 0, 4);
    std::vector<float> got;
    std::vector<double> wanted;
    for (int64_t row = 0; row < 14; ++row) {
      for (int64_t i = 0; i < 64; ++i) {
        const auto at = static_cast<size_t>(row * plain.args.y_stride + i / 32 * 64 + i % 32);
        const double gate = sums[at];
        got.push_back(bf16_to_f32(y[row * 64 + i]));
        wanted.push_back(gate / (1.0 + std::exp(-gate)) * static_cast<double>(sums[at + 32]));
      }
    }
    EXPECT_LE(relative_error(got, wanted), 5e-3);
  }
}

TEST_P(Int8Gemm, WhatIsNotFiniteSpoilsItsRowAlone) {
  for (const float spoiled : {NAN, INFINITY}) {
    Int8Product product = make_product(random_, 8, whole(32), whole(96), Quantization::kInt8);
    put(product.x.data(), ElementType::kBF16, 2 * product.args.x_stride + 40, spoiled);
    const auto y = results_of(*kernels_, product, Quantization::kInt8, GemmStore::kWrite, 0, 8);
    for (int64_t row = 0; row < 8; ++row) {
      EXPECT_EQ(std::isnan(y[static_cast<size_t>(row * product.args.y_stride)]), row == 2);
    }
  }
}

// A plan of memory holds the scratch of every family for each thread.
TEST_P(Int8Gemm, ScratchIsBounded) {
  GemmArgs args;
  args.rows = 2048;
  args.w.n = 4096;
  args.w.k = 14336;
  args.w.type = ElementType::kBF16;
  args.w.quantization = Quantization::kInt8;
  args.w.activations = Activations::kInt8;
  EXPECT_LE(kernels_->gemm_scratch_bytes(args), int64_t{2} << 20);
}

INSTANTIATE_TEST_SUITE_P(EveryFamily, Int8Gemm, testing::ValuesIn(known_isas()),
                         [](const auto& param_info) {
                           return std::string(isa_name(param_info.param));
                         });

}  // namespace
}  // namespace tandem::kernels
