// Packing, matrix products and embedding of every kernel family against sums in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "families.h"
#include "gemm_sources.h"
#include "kernels/kernels.h"

namespace tandem::kernels {
namespace {

// One packed weight of several sources side by side, as q, k and v are.
struct Weight {
  Guarded<std::byte> memory;
  PackedMatrix matrix;
  std::vector<float> values;  // [n, k]
};

Weight pack_all(const Kernels& kernels, const std::vector<Source>& sources, Stored stored) {
  PackedMatrix matrix;
  matrix.type = stored.type;
  matrix.quantization = stored.quantization;
  matrix.k = sources[0].k.padded();
  for (const Source& source : sources) {
    matrix.n += source.n.padded();
  }
  Weight weight{Guarded<std::byte>(matrix.bytes()), matrix, {}};
  weight.matrix.data = weight.memory.data();
  int64_t offset = 0;
  for (const Source& source : sources) {
    PackArgs args;
    args.source = source.bytes.data();
    args.source_type = source.type;
    args.n = source.n;
    args.k = source.k;
    args.target = weight.matrix;
    args.target_data = weight.memory.data();
    args.n_offset = offset;
    const int64_t panels = source.n.padded() / kPanelColumns;
    kernels.pack(args, panels / 2, panels);  // in two parts, the later one first
    kernels.pack(args, 0, panels / 2);
    offset += source.n.padded();
    weight.values.insert(weight.values.end(), source.padded.begin(), source.padded.end());
  }
  EXPECT_TRUE(weight.memory.guards_intact());
  return weight;
}

// `count` groups (heads) of `group`, each padded.
PaddedDim grouped(int64_t count, int64_t group) {
  return {count * group, group, round_up(group, 32)};
}

PaddedDim random_dim(Random& random) {
  switch (pick(random, 0, 2)) {
    case 0:
      return whole(pick(random, 1, 8) * 32);
    case 1:
      return whole(pick(random, 1, 300));
    default:
      return grouped(pick(random, 1, 5), pick(random, 1, 70));
  }
}

// X, Y and scratch for one call.
struct Call {
  Guarded<std::byte> x;
  Guarded<float> y;
  std::vector<float> before;  // y's content before the call
  GemmArgs args;
};

Call make_call(Random& random, const Weight& weight, int64_t rows, GemmStore store) {
  const ElementType type = weight.matrix.type;
  const int64_t x_stride = weight.matrix.k + pick(random, 0, 2) * 32;
  const int64_t y_stride = weight.matrix.n + pick(random, 0, 40);
  Call call{Guarded<std::byte>(rows * x_stride * element_bytes(type)),
            Guarded<float>(rows * y_stride),
            {},
            {}};
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t k = 0; k < weight.matrix.k; ++k) {
      put(call.x.data(), type, row * x_stride + k, uniform(random, -1.0F, 1.0F));
    }
    for (int64_t n = 0; n < weight.matrix.n && store == GemmStore::kAdd; ++n) {
      call.y[row * y_stride + n] = uniform(random, -4.0F, 4.0F);
    }
  }
  call.before.assign(call.y.data(), call.y.data() + call.y.size());
  call.args.x = call.x.data();
  call.args.x_stride = x_stride;
  call.args.rows = rows;
  call.args.w = weight.matrix;
  call.args.y = call.y.data();
  call.args.y_stride = y_stride;
  call.args.store = store;
  return call;
}

// Compares all of y with double sums; also that nothing past column n was touched.
void expect_right(const Weight& weight, const Call& call, double tolerance) {
  const GemmArgs& args = call.args;
  std::vector<double> x(static_cast<size_t>(weight.matrix.k));
  std::vector<float> got;
  std::vector<double> wanted;
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t k = 0; k < weight.matrix.k; ++k) {
      x[static_cast<size_t>(k)] = get(args.x, weight.matrix.type, row * args.x_stride + k);
    }
    for (int64_t n = 0; n < weight.matrix.n; ++n) {
      const float* w = weight.values.data() + n * weight.matrix.k;
      double parts[8] = {};  // depths are a multiple of 32
      for (int64_t k = 0; k < weight.matrix.k; ++k) {
        parts[k % 8] += x[static_cast<size_t>(k)] * static_cast<double>(w[k]);
      }
      double sum = args.bias != nullptr ? args.bias[n] : 0.0;
      for (const double part : parts) {
        sum += part;
      }
      const int64_t at = row * args.y_stride + n;
      if (args.store == GemmStore::kAdd) {
        sum += static_cast<double>(call.before[static_cast<size_t>(at)]);
      }
      got.push_back(call.y[at]);
      wanted.push_back(sum);
    }
    for (int64_t n = weight.matrix.n; n < args.y_stride; ++n) {
      ASSERT_TRUE(std::isnan(call.y[row * args.y_stride + n])) << "row " << row << " column " << n;
    }
  }
  EXPECT_LE(relative_error(got, wanted), tolerance);
  EXPECT_TRUE(call.x.guards_intact());
  EXPECT_TRUE(call.y.guards_intact());
}

class Gemm : public testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    if (!can_run(GetParam())) {
      GTEST_SKIP() << "this machine has no " << GetParam().name << ": not tested";
    }
    kernels_ = &table_of(GetParam());
  }
  const Kernels* kernels_ = nullptr;
  Random random_{7};
};

constexpr ElementType kSourceTypes[] = {ElementType::kF32, ElementType::kBF16, ElementType::kF16};

TEST_P(Gemm, RandomShapesMatchDoubleSums) {
  for (int round = 0; round < 60; ++round) {
    const std::vector<Stored> all = stored_of(GetParam());
    const Stored stored = all[static_cast<size_t>(round) % all.size()];
    const PaddedDim k = random_dim(random_);
    std::vector<Source> sources;
    for (int64_t i = pick(random_, 1, 3); i > 0; --i) {
      sources.push_back(
          make_source(random_, random_dim(random_), k, kSourceTypes[pick(random_, 0, 2)], stored));
    }
    const Weight weight = pack_all(*kernels_, sources, stored);
    const auto store = pick(random_, 0, 1) == 0 ? GemmStore::kWrite : GemmStore::kAdd;
    Call call = make_call(random_, weight, pick(random_, 1, 70), store);
    std::vector<float> bias;
    if (pick(random_, 0, 1) == 0) {
      for (int64_t n = 0; n < weight.matrix.n; ++n) {
        bias.push_back(uniform(random_, -1.0F, 1.0F));
      }
      call.args.bias = bias.data();
    }
    run(*kernels_, call.args, 0, weight.matrix.panels());
    SCOPED_TRACE(testing::Message() << "round " << round << ": rows " << call.args.rows << " n "
                                    << weight.matrix.n << " k " << weight.matrix.k);
    expect_right(weight, call, 1e-5);
  }
}

TEST_P(Gemm, LargeShapesMatchDoubleSums) {
  struct Shape {
    int64_t rows, n, k;
  };
  for (const Shape shape : {Shape{300, 64, 2048}, Shape{97, 32, 5632}, Shape{16, 544, 544},
                            Shape{600, 32, 416}, Shape{65, 32, 14336}, Shape{100, 96, 5632}}) {
    for (const Stored stored : stored_of(GetParam())) {
      if (is_plain(GetParam()) && shape.rows != 16) {
        continue;
      }
      const Weight weight = pack_all(
          *kernels_,
          {make_source(random_, whole(shape.n), whole(shape.k), ElementType::kBF16, stored)},
          stored);
      const auto store = stored.type == ElementType::kBF16 ? GemmStore::kAdd : GemmStore::kWrite;
      Call call = make_call(random_, weight, shape.rows, store);
      run(*kernels_, call.args, 0, weight.matrix.panels());
      SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.n << " x " << shape.k);
      expect_right(weight, call, 1e-5);
    }
  }
}

// Rows 0 .. m-1 of the same x, for every m: the bits of a row are those it has alone.
TEST_P(Gemm, ARowDoesNotDependOnTheNumberOfRows) {
  for (const Stored stored : stored_of(GetParam())) {
    const Weight weight = pack_all(
        *kernels_, {make_source(random_, whole(64), grouped(3, 100), ElementType::kF32, stored)},
        stored);
    const int64_t n = weight.matrix.n;
    constexpr int64_t kRows = 70;
    Call all = make_call(random_, weight, kRows, GemmStore::kWrite);
    std::vector<float> alone;
    for (int64_t row = 0; row < kRows; ++row) {
      Guarded<float> y(n);
      GemmArgs args = all.args;
      args.x = all.x.data() + row * args.x_stride * element_bytes(stored.type);
      args.rows = 1;
      args.y = y.data();
      args.y_stride = n;
      run(*kernels_, args, 0, weight.matrix.panels());
      alone.insert(alone.end(), y.data(), y.data() + n);
    }
    for (int64_t rows = 1; rows <= kRows; ++rows) {
      GemmArgs args = all.args;
      args.rows = rows;
      Guarded<float> y(rows * n);
      args.y = y.data();
      args.y_stride = n;
      run(*kernels_, args, 0, weight.matrix.panels());
      ASSERT_EQ(std::memcmp(y.data(), alone.data(), static_cast<size_t>(rows * n) * 4), 0)
          << rows << " rows, " << testing::PrintToString(stored);
    }
  }
}

// Deep, wide and tall enough that every family cuts depth, panels and rows for its caches. Some
// rows hold numbers that would spoil their neighbours if rows met.
TEST_P(Gemm, ARowOfALargeProductEqualsTheRowAlone) {
  const int64_t n = is_plain(GetParam()) ? 32 : 17 * 32;
  const int64_t k = is_plain(GetParam()) ? 2080 : 4160;
  for (const Stored stored : stored_of(GetParam())) {
    const auto store = stored.type == ElementType::kBF16 ? GemmStore::kAdd : GemmStore::kWrite;
    const Weight weight = pack_all(
        *kernels_, {make_source(random_, whole(n), whole(k), ElementType::kBF16, stored)}, stored);
    Call all = make_call(random_, weight, 261, store);
    std::vector<float> bias(static_cast<size_t>(weight.matrix.n), 0.75F);
    all.args.bias = bias.data();
    const auto set_x = [&](int64_t row, int64_t depth, float value) {
      put(all.x.data(), stored.type, row * all.args.x_stride + depth, value);
    };
    set_x(14, 5, std::numeric_limits<float>::quiet_NaN());
    set_x(101, 1000, std::numeric_limits<float>::infinity());
    set_x(259, k - 1, -std::numeric_limits<float>::infinity());
    for (int64_t depth = 0; depth < 64; ++depth) {
      set_x(16, depth, 1e-39F);  // denormal: its row must still have the same bits
    }
    run(*kernels_, all.args, 0, weight.matrix.panels());
    for (const int64_t row : {0, 15, 16, 100, 127, 255, 256, 260}) {
      Guarded<float> y(weight.matrix.n);
      GemmArgs args = all.args;
      args.x = all.x.data() + row * args.x_stride * element_bytes(stored.type);
      args.rows = 1;
      args.y = y.data();
      std::copy_n(all.before.begin() + row * args.y_stride, weight.matrix.n, y.data());
      run(*kernels_, args, 0, weight.matrix.panels());
      ASSERT_EQ(std::memcmp(y.data(), all.y.data() + row * args.y_stride,
                            static_cast<size_t>(weight.matrix.n) * 4),
                0)
          << "row " << row << ", " << testing::PrintToString(stored);
    }
  }
}

TEST_P(Gemm, TheDivisionIntoPanelsDoesNotMatter) {
  for (const Stored stored : stored_of(GetParam())) {
    const Weight weight = pack_all(
        *kernels_, {make_source(random_, whole(7 * 32), whole(172), ElementType::kF32, stored)},
        stored);
    for (const int64_t rows : {1, 5, 33, 90}) {
      Call whole_call = make_call(random_, weight, rows, GemmStore::kWrite);
      run(*kernels_, whole_call.args, 0, 7);
      Guarded<float> y(whole_call.y.size());
      GemmArgs args = whole_call.args;
      args.y = y.data();
      for (const auto& [begin, end] : {std::pair{5, 7}, std::pair{0, 1}, std::pair{1, 5}}) {
        run(*kernels_, args, begin, end);
      }
      EXPECT_EQ(std::memcmp(y.data(), whole_call.y.data(), static_cast<size_t>(y.size()) * 4), 0);
    }
  }
}

TEST_P(Gemm, PaddingColumnsAreExactlyZero) {
  for (const Stored stored : stored_of(GetParam())) {
    const Weight weight = pack_all(
        *kernels_, {make_source(random_, grouped(4, 8), whole(172), ElementType::kBF16, stored)},
        stored);
    Call call = make_call(random_, weight, 17, GemmStore::kWrite);
    run(*kernels_, call.args, 0, weight.matrix.panels());
    for (int64_t row = 0; row < 17; ++row) {
      for (int64_t n = 0; n < weight.matrix.n; ++n) {
        if (n % 32 >= 8) {
          ASSERT_EQ(call.y[row * call.args.y_stride + n], 0.0F);
        }
      }
    }
  }
}

TEST_P(Gemm, NoRowsOrNoPanelsWriteNothing) {
  const Weight weight =
      pack_all(*kernels_,
               {make_source(random_, whole(64), whole(64), ElementType::kF32, ElementType::kBF16)},
               ElementType::kBF16);
  Call call = make_call(random_, weight, 3, GemmStore::kWrite);
  run(*kernels_, call.args, 1, 1);
  call.args.rows = 0;
  run(*kernels_, call.args, 0, 2);
  for (int64_t i = 0; i < call.y.size(); ++i) {
    ASSERT_TRUE(std::isnan(call.y[i]));
  }
}

TEST_P(Gemm, UnpackingARowGivesTheValuesThatWerePacked) {
  for (int round = 0; round < 24; ++round) {
    const std::vector<Stored> all = stored_of(GetParam());
    const Stored stored = all[static_cast<size_t>(round) % all.size()];
    const Source source = make_source(random_, random_dim(random_), random_dim(random_),
                                      kSourceTypes[round % 3], stored);
    const Weight weight = pack_all(*kernels_, {source}, stored);
    for (int64_t row = 0; row < weight.matrix.n; ++row) {
      Guarded<float> out(weight.matrix.k);
      kernels_->unpack_row(weight.matrix, row, out.data());
      ASSERT_TRUE(std::equal(out.data(), out.data() + out.size(),
                             weight.values.begin() + row * weight.matrix.k));
      ASSERT_TRUE(out.guards_intact());
    }
  }
}

TEST_P(Gemm, EmbeddingTakesTheRowsOfTheIds) {
  for (const Stored stored : stored_of(GetParam())) {
    const Weight weight =
        pack_all(*kernels_,
                 {make_source(random_, whole(259), whole(172), ElementType::kF16, stored)}, stored);
    const std::vector<int32_t> ids = {0, 258, 31, 32, 32, 100};
    EmbedArgs args;
    args.ids = ids.data();
    args.rows = 6;
    args.table = weight.matrix;
    args.y_stride = weight.matrix.k + 5;
    Guarded<float> y(args.rows * args.y_stride);
    args.y = y.data();
    kernels_->embed(args, 1, 5);
    for (int64_t row = 0; row < args.rows; ++row) {
      const float* got = y.data() + row * args.y_stride;
      if (row == 0 || row == 5) {
        ASSERT_TRUE(std::isnan(got[0]));
        continue;
      }
      ASSERT_TRUE(
          std::equal(got, got + weight.matrix.k,
                     weight.values.begin() + ids[static_cast<size_t>(row)] * weight.matrix.k));
      ASSERT_TRUE(std::isnan(got[weight.matrix.k]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryFamily, Gemm, testing::ValuesIn(known_families()),
                         [](const auto& param_info) { return param_info.param.name; });

TEST(Isas, NamesRoundTrip) {
  for (const Isa isa : known_isas()) {
    const Result<Isa> parsed = parse_isa(isa_name(isa));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(parsed.value(), isa);
  }
}

TEST(Isas, AnUnknownNameIsAnErrorThatListsTheKnownOnes) {
  const Result<Isa> parsed = parse_isa("sse9");
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(parsed.error().message.find("sse9"), std::string::npos);
  EXPECT_NE(parsed.error().message.find("ref, neon, avx2, avx512, avx512bf16, amx"),
            std::string::npos);
}

TEST(Isas, EveryAvailableFamilyHasATableOfItsName) {
  const std::vector<Isa> isas = available_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::kRef);
  for (const Isa isa : isas) {
    EXPECT_EQ(table_of(isa).isa, isa);
    EXPECT_EQ(table_of(isa).name, isa_name(isa));
  }
}

TEST(Isas, AFamilyOfAnotherProcessorIsAnError) {
  const bool arm = can_run(Isa::kNeon);
  const Result<const Kernels*> table = kernels_for(arm ? Isa::kAvx2 : Isa::kNeon);
  ASSERT_FALSE(table.ok());
  EXPECT_NE(table.error().message.find("it can run: ref"), std::string::npos);
}

}  // namespace
}  // namespace tandem::kernels
