// SiLU(gate) * up in the epilogue of a product, of every kernel family, against sums in double
// precision.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "families.h"
#include "gemm_sources.h"
#include "kernels/kernels.h"

namespace tandem::kernels {
namespace {

// gate and up packed in turn, panel by panel.
struct GateUp {
  Source gate;
  Source up;
  Guarded<std::byte> memory;
  PackedMatrix matrix;
};

GateUp pack_gate_up(Random& random, const Kernels& kernels, PaddedDim n, PaddedDim k,
                    Stored stored) {
  Source gate = make_source(random, n, k, ElementType::kF32, stored);
  Source up = make_source(random, n, k, ElementType::kBF16, stored);
  PackedMatrix matrix{nullptr, stored.type, 2 * n.padded(), k.padded(), stored.quantization};
  GateUp pair{std::move(gate), std::move(up), Guarded<std::byte>(matrix.bytes()), matrix};
  pair.matrix.data = pair.memory.data();
  for (const Source* source : {&pair.gate, &pair.up}) {
    PackArgs args;
    args.source = source->bytes.data();
    args.source_type = source->type;
    args.n = n;
    args.k = k;
    args.target = pair.matrix;
    args.target_data = pair.memory.data();
    args.n_offset = source == &pair.gate ? 0 : kPanelColumns;
    args.panel_step = 2;
    kernels.pack(args, 0, n.padded() / kPanelColumns);
  }
  EXPECT_TRUE(pair.memory.guards_intact());
  return pair;
}

// x and the activated rows of one call.
struct Activation {
  Guarded<std::byte> x;
  Guarded<std::byte> y;
  GemmArgs args;
};

Activation make_activation(Random& random, const PackedMatrix& w, int64_t rows, float range) {
  const int64_t x_stride = spread_stride(w.k, w.type);
  const int64_t y_stride = w.n / 2 + pick(random, 0, 3) * 32;
  Activation call{Guarded<std::byte>(rows * x_stride * element_bytes(w.type)),
                  Guarded<std::byte>(rows * y_stride * element_bytes(w.type)),
                  {}};
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t k = 0; k < w.k; ++k) {
      put(call.x.data(), w.type, row * x_stride + k, uniform(random, -range, range));
    }
  }
  call.args.x = call.x.data();
  call.args.x_stride = x_stride;
  call.args.rows = rows;
  call.args.w = w;
  call.args.y_stride = y_stride;
  call.args.store = GemmStore::kSiluMul;
  call.args.activated = call.y.data();
  return call;
}

double silu_product(const GateUp& pair, const GemmArgs& args, int64_t row, int64_t n) {
  double gate = 0.0;
  double up = 0.0;
  for (int64_t k = 0; k < args.w.k; ++k) {
    const auto at = static_cast<size_t>(n * args.w.k + k);
    const double x = get(args.x, args.w.type, row * args.x_stride + k);
    gate += x * static_cast<double>(pair.gate.padded[at]);
    up += x * static_cast<double>(pair.up.padded[at]);
  }
  return gate / (1.0 + std::exp(-gate)) * up;
}

class GemmSiluMul : public testing::TestWithParam<Family> {
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

TEST_P(GemmSiluMul, MatchesDoubleSumsOverTheWholeRangeOfGates) {
  struct Shape {
    int64_t rows, n, k;
  };
  for (const Shape shape : {Shape{1, 40, 64}, Shape{17, 96, 172}, Shape{70, 160, 2080},
                            Shape{300, 64, 2048}, Shape{261, 32, 4100}}) {
    for (const Stored stored : stored_of(GetParam())) {
      if (is_plain(GetParam()) && shape.k > 1000) {
        continue;
      }
      const GateUp pair = pack_gate_up(random_, *kernels_, whole(shape.n), whole(shape.k), stored);
      for (const float range : {1e-3F, 1.0F, 30.0F}) {
        Activation call = make_activation(random_, pair.matrix, shape.rows, range);
        const int64_t panels = pair.matrix.panels();
        run(*kernels_, call.args, panels / 4 * 2, panels);  // in two parts, the later one first
        run(*kernels_, call.args, 0, panels / 4 * 2);
        std::vector<float> got;
        std::vector<double> wanted;
        for (int64_t row = 0; row<shape.rows; row += shape.rows> 100 ? 37 : 1) {
          for (int64_t n = 0; n < pair.matrix.n / 2; ++n) {
            got.push_back(get(call.y.data(), stored.type, row * call.args.y_stride + n));
            wanted.push_back(silu_product(pair, call.args, row, n));
          }
        }
        SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.n << " x " << shape.k
                                        << " of x up to " << range);
        EXPECT_LE(relative_error(got, wanted), stored.type == ElementType::kF32 ? 2e-5 : 5e-3);
        EXPECT_TRUE(call.y.guards_intact());
      }
    }
  }
}

TEST_P(GemmSiluMul, AnActivatedRowDoesNotDependOnTheNumberOfRows) {
  for (const Stored stored : stored_of(GetParam())) {
    const GateUp pair = pack_gate_up(random_, *kernels_, whole(96), whole(160), stored);
    Activation all = make_activation(random_, pair.matrix, 230, 1.0F);
    run(*kernels_, all.args, 0, pair.matrix.panels());
    const auto row_bytes = static_cast<size_t>(96 * element_bytes(stored.type));
    for (const int64_t row : {0, 1, 15, 16, 47, 48, 207, 208, 229}) {
      GemmArgs args = all.args;
      Guarded<std::byte> y(96 * element_bytes(stored.type));
      args.x = all.x.data() + row * args.x_stride * element_bytes(stored.type);
      args.rows = 1;
      args.activated = y.data();
      args.y_stride = 96;
      run(*kernels_, args, 0, pair.matrix.panels());
      ASSERT_EQ(
          std::memcmp(y.data(), all.y.data() + row * all.args.y_stride * element_bytes(stored.type),
                      row_bytes),
          0)
          << "row " << row << ", " << testing::PrintToString(stored);
    }
  }
}

TEST_P(GemmSiluMul, NanPassesThrough) {
  const GateUp pair = pack_gate_up(random_, *kernels_, whole(32), whole(32), ElementType::kBF16);
  Activation call = make_activation(random_, pair.matrix, 2, 1.0F);
  put(call.x.data(), ElementType::kBF16, 0, NAN);
  run(*kernels_, call.args, 0, 2);
  for (int64_t n = 0; n < 32; ++n) {
    EXPECT_TRUE(std::isnan(get(call.y.data(), ElementType::kBF16, n)));
    EXPECT_FALSE(std::isnan(get(call.y.data(), ElementType::kBF16, call.args.y_stride + n)));
  }
}

INSTANTIATE_TEST_SUITE_P(EveryFamily, GemmSiluMul, testing::ValuesIn(known_families()),
                         [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace tandem::kernels
