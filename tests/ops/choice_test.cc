// Which kernels a run computes with: made-up measurements, names, and whether families that may
// share the rows of a run really compute the same.
#include "kernels/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "gemm_sources.h"

namespace tandem::kernels {
namespace {

using ::testing::HasSubstr;

constexpr Isa kAvx2 = Isa::kAvx2;
constexpr Isa kAvx512 = Isa::kAvx512;
constexpr Isa kPairs = Isa::kAvx512Bf16;
constexpr Isa kAmx = Isa::kAmx;

bool all_same(Isa, Isa) { return true; }
bool none_same(Isa one, Isa other) { return one == other; }
// The vector families agree, the matrix unit does not.
bool vectors_same(Isa one, Isa other) { return (one == kAmx) == (other == kAmx); }

std::string chosen(const std::vector<ProductTimes>& times,
                   const std::function<bool(Isa, Isa)>& same) {
  return choice_text(choose(times, same));
}

TEST(Choice, FamiliesWithTheSameProductsShareTheRows) {
  // A machine whose products of pairs are twice as fast, but slower where reading is the limit.
  const std::vector<ProductTimes> times = {{kAvx2, {0.73, 0.75, 1.2, 1.9, 2.0}},
                                           {kAvx512, {0.78, 0.78, 1.1, 1.8, 2.0}},
                                           {kPairs, {1, 1, 1, 1, 1}}};
  EXPECT_EQ(chosen(times, all_same), "avx2:2,avx512:8,avx512bf16")
      << "within noise the more preferred of the faster ones";
  EXPECT_EQ(chosen({times.back()}, all_same), "avx512bf16");
}

TEST(Choice, ATieWithinTheNoiseGoesToTheUsualFamily) {
  EXPECT_EQ(chosen({{kAvx2, {0.96, 0.96, 0.96, 0.96, 0.96}}, {kAvx512, {1, 1, 1, 1, 1}}}, all_same),
            "avx512");
  EXPECT_EQ(chosen({{kAvx2, {0.9, 0.9, 0.9, 0.9, 0.9}}, {kAvx512, {1, 1, 1, 1, 1}}}, all_same),
            "avx2:*,avx512")
      << "all that is no product stays with the usual family";
  EXPECT_EQ(chosen({{kAvx512, {0.97, 0.96, 0.96, 0.97, 0.97}}, {kAmx, {1, 1, 1, 1, 1}}}, none_same),
            "amx");
}

TEST(Choice, FamiliesThatDifferCompeteAsAWholeAndFewRowsCountMost) {
  // Slower at few rows, twice as fast at many.
  EXPECT_EQ(chosen({{kAvx512, {0.7, 0.7, 0.9, 1.5, 2}}, {kPairs, {1, 1, 1, 1, 1}}}, none_same),
            "avx512");
  // As fast at few rows, much faster at many.
  EXPECT_EQ(chosen({{kAvx512, {0.95, 0.95, 1, 3, 8}}, {kAmx, {1, 1, 1, 1, 1}}}, none_same), "amx");
  // The vector families together are what competes with the matrix unit.
  const std::vector<ProductTimes> times = {
      {kAvx2, {0.5, 0.5, 2, 2, 2}}, {kAvx512, {1, 1, 0.5, 1, 1}}, {kAmx, {1, 1, 1, 1, 1}}};
  EXPECT_EQ(chosen(times, none_same), "avx512");
  EXPECT_EQ(chosen(times, vectors_same), "avx2:8,avx512");
}

TEST(Choice, HasANameThatIsReadBack) {
  for (const char* text : {"ref", "avx2", "amx", "avx2:8,avx512bf16", "avx2:2,avx512:8,avx512bf16",
                           "avx2:1,avx512:*,avx512bf16"}) {
    const Result<Choice> choice = parse_choice(text);
    ASSERT_TRUE(choice.ok()) << text;
    EXPECT_EQ(choice_text(*choice), text);
  }
  for (const char* text : {"", "sse", "avx2,avx512", "avx2:0,avx512", "avx2:x,avx512", "avx2:8",
                           "avx2:8,", "avx2:8,avx512:8,amx", "avx2:*,avx512:9,amx", "avx2:-1,amx",
                           "avx2:99999999999999999999,amx", "sse:2,avx2"}) {
    const Result<Choice> choice = parse_choice(text);
    ASSERT_FALSE(choice.ok()) << text;
    EXPECT_EQ(choice.error().param, "isa");
  }
}

bool here(Isa isa) { return std::ranges::count(available_isas(), isa) > 0; }

TEST(Choice, ASetGivesEachNumberOfRowsItsFamily) {
  if (!here(kAvx512)) {
    GTEST_SKIP() << "no AVX-512 here";
  }
  const Result<KernelSet> set = kernel_set(*parse_choice("avx2:8,avx512"));
  ASSERT_TRUE(set.ok()) << set.error().message;
  EXPECT_EQ(set->all().isa, kAvx512);
  EXPECT_EQ(set->for_rows(1).isa, kAvx2);
  EXPECT_EQ(set->for_rows(8).isa, kAvx2);
  EXPECT_EQ(set->for_rows(9).isa, kAvx512);
  EXPECT_EQ(kernel_set(*parse_choice("avx2:*,avx512"))->for_rows(1'000'000).isa, kAvx2);
  const Result<KernelSet> mixed = kernel_set(*parse_choice("ref:8,avx512"));
  ASSERT_FALSE(mixed.ok());
  EXPECT_THAT(mixed.error().message, HasSubstr("cannot mix"));
}

TEST(Choice, TheMatrixUnitAddsInAnotherOrder) {
  if (!here(kAmx)) {
    GTEST_SKIP() << "no AMX here";
  }
  EXPECT_FALSE(same_products(table_of(kAmx), table_of(kAvx512)));
  EXPECT_FALSE(kernel_set(*parse_choice("avx512:8,amx")).ok());
}

// Everything that a product leaves behind, bit for bit, over shapes of all kinds.
void expect_same_products(Isa one, Isa other, Stored stored) {
  const ElementType type = stored.type;
  const Kernels& first = table_of(one);
  const Kernels& second = table_of(other);
  Random random(9);
  for (int round = 0; round < 20; ++round) {
    const int64_t n = pick(random, 1, 6) * 64;
    const int64_t k = pick(random, 1, round % 10 == 0 ? 300 : 60) * 32;
    const int64_t rows = round % 3 == 0 ? pick(random, 1, 12) : pick(random, 1, 150);
    const Source source = make_source(random, whole(n), whole(k), type, stored);
    PackedMatrix w{.type = type, .n = n, .k = k, .quantization = stored.quantization};
    Guarded<std::byte> memory(w.bytes());
    w.data = memory.data();
    first.pack({.source = source.bytes.data(),
                .source_type = type,
                .n = source.n,
                .k = source.k,
                .target = w,
                .target_data = memory.data()},
               0, n / kPanelColumns);
    const int64_t x_stride = k + 32 * pick(random, 0, 2);
    std::vector<std::byte> x(static_cast<size_t>(rows * x_stride * element_bytes(type)));
    for (int64_t i = 0; i < rows * x_stride; ++i) {
      const int scale = static_cast<int>(pick(random, -20, 10));
      put(x.data(), type, i, std::ldexp(uniform(random, -1.0F, 1.0F), scale));
    }
    std::vector<float> bias(static_cast<size_t>(n));
    std::ranges::generate(bias, [&] { return uniform(random, -1.0F, 1.0F); });
    for (const GemmStore store : {GemmStore::kWrite, GemmStore::kAdd, GemmStore::kSiluMul}) {
      std::vector<float> y[2] = {std::vector<float>(static_cast<size_t>(rows * n), 0.5F),
                                 std::vector<float>(static_cast<size_t>(rows * n), 0.5F)};
      for (const Kernels* kernels : {&first, &second}) {
        float* to = y[kernels == &first ? 0 : 1].data();
        const GemmArgs args{.x = x.data(),
                            .x_stride = x_stride,
                            .rows = rows,
                            .w = w,
                            .bias = store == GemmStore::kWrite ? bias.data() : nullptr,
                            .y = to,
                            .y_stride = n,
                            .store = store,
                            .activated = to};
        run(*kernels, args, 0, n / kPanelColumns);
      }
      ASSERT_EQ(std::memcmp(y[0].data(), y[1].data(), y[0].size() * sizeof(float)), 0)
          << rows << " rows, " << n << " x " << k;
    }
  }
}

TEST(Choice, VectorFamiliesComputeTheSameProductsBitForBit) {
  if (!here(kAvx512)) {
    GTEST_SKIP() << "no AVX-512 here";
  }
  EXPECT_TRUE(same_products(table_of(kAvx2), table_of(kAvx512)));
  expect_same_products(kAvx2, kAvx512, ElementType::kBF16);
  expect_same_products(kAvx2, kAvx512, ElementType::kF32);
  for (const Quantization quantization : kQuantizations) {
    expect_same_products(kAvx2, kAvx512, {ElementType::kBF16, quantization});
  }
}

TEST(Choice, ProductsOfPairsAreThoseOfMultiplyAdds) {
  if (!here(kPairs)) {
    GTEST_SKIP() << "no AVX-512 BF16 here";
  }
  const bool same = same_products(table_of(kPairs), table_of(kAvx512));
#if defined(__x86_64__)
  // Intel documents the order and the rounding; where another maker's differ, they are not mixed.
  EXPECT_TRUE(same || __builtin_cpu_is("intel") == 0);
#endif
  if (same) {
    expect_same_products(kPairs, kAvx512, ElementType::kBF16);
    expect_same_products(kPairs, kAvx2, ElementType::kBF16);
    for (const Quantization quantization : kQuantizations) {
      expect_same_products(kPairs, kAvx512, {ElementType::kBF16, quantization});
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
