// Uploads, products and embeddings on a device against sums in double precision.
#include <cmath>

#include "device_under_test.h"
#include "gemm_sources.h"

namespace tandem::device {
namespace {

using kernels::PaddedDim;
using kernels::put;
using kernels::Random;
using kernels::Source;
using kernels::uniform;
using kernels::whole;

constexpr ElementType kTypes[] = {ElementType::kF32, ElementType::kBF16};

// A matrix on the device, in its own layout.
struct Uploaded {
  std::unique_ptr<Both<std::byte>> memory;
  WeightMatrix matrix;
};

class DenseOps : public testing::Test {
 protected:
  DenseOps() { under_test_.clear(); }

  Uploaded room(int64_t n, int64_t k, ElementType type) {
    const Formats& formats = under_test_.device().formats();
    Uploaded weight;
    weight.matrix = formats.matrix({.type = type}, n, k);
    weight.memory = std::make_unique<Both<std::byte>>(weight.matrix.stored_bytes);
    weight.matrix.data = weight.memory->device();
    return weight;
  }
  void upload(const Uploaded& weight, const Source& source, WeightPart part, int64_t n_offset) {
    under_test_.run(UploadOp{.source = source.bytes.data(),
                             .source_type = source.type,
                             .n = source.n,
                             .k = source.k,
                             .target = weight.matrix,
                             .target_data = weight.memory->device(),
                             .part = part,
                             .n_offset = n_offset});
  }
  // [rows, stride] of `type`; NaN beyond k.
  Both<std::byte> activations(int64_t rows, int64_t k, int64_t stride, ElementType type) {
    Both<std::byte> x(rows * stride * element_bytes(type));
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < k; ++i) {
        put(x.host.data(), type, row * stride + i, uniform(random_, -1.0F, 1.0F));
      }
    }
    x.copy_in();
    return x;
  }
  static double product(const Both<std::byte>& x, ElementType type, int64_t x_row, const Source& w,
                        int64_t n) {
    double sum = 0;
    const int64_t k = w.k.padded();
    for (int64_t i = 0; i < k; ++i) {
      sum += static_cast<double>(kernels::get(x.host.data(), type, x_row + i)) *
             static_cast<double>(w.padded[static_cast<size_t>(n * k + i)]);
    }
    return sum;
  }

  DeviceUnderTest& under_test_ = DeviceUnderTest::get();
  Random random_{4};
};

TEST_F(DenseOps, ProductsOfSeveralSourcesWithBiasAndSum) {
  for (const ElementType type : kTypes) {
    for (const int64_t rows : {1, 8, 33}) {
      for (const bool accumulate : {false, true}) {
        under_test_.clear();
        const PaddedDim k = whole(200);
        const std::vector<Source> sources = {
            kernels::make_source(random_, {5 * 20, 20, 32}, k, ElementType::kBF16, type),
            kernels::make_source(random_, whole(70), k, ElementType::kF16, type)};
        const int64_t n = 5 * 32 + 96;
        const Uploaded weight = room(n, k.padded(), type);
        upload(weight, sources[0], WeightPart::kRows, 0);
        upload(weight, sources[1], WeightPart::kRows, 5 * 32);
        const int64_t stride = k.padded() + 32;
        const Both<std::byte> x = activations(rows, k.padded(), stride, type);
        Both<float> bias(n);
        Both<float> y(rows * (n + 7));
        for (float& value : bias.host) {
          value = uniform(random_, -1.0F, 1.0F);
        }
        for (float& value : y.host) {
          value = uniform(random_, -4.0F, 4.0F);
        }
        bias.copy_in();
        y.copy_in();
        under_test_.run(GemmOp{.x = x.device(),
                               .x_type = type,
                               .x_stride = stride,
                               .rows = rows,
                               .w = weight.matrix,
                               .bias = bias.device(),
                               .y = y.device(),
                               .y_stride = n + 7,
                               .accumulate = accumulate});
        const std::vector<float> after = y.result();
        std::vector<float> got;
        std::vector<double> wanted;
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t column = 0; column < n + 7; ++column) {
            const auto at = static_cast<size_t>(row * (n + 7) + column);
            if (column >= n) {
              ASSERT_EQ(after[at], y.host[at]) << "beyond the columns";
              continue;
            }
            const bool first = column < 160;
            got.push_back(after[at]);
            wanted.push_back(product(x, type, row * stride, sources[first ? 0 : 1],
                                     first ? column : column - 160) +
                             static_cast<double>(bias.host[static_cast<size_t>(column)]) +
                             (accumulate ? static_cast<double>(y.host[at]) : 0.0));
          }
        }
        EXPECT_LT(kernels::relative_error(got, wanted), 1e-5);
      }
    }
  }
}

TEST_F(DenseOps, GateAndUp) {
  for (const ElementType type : kTypes) {
    under_test_.clear();
    const PaddedDim n = whole(150);
    const PaddedDim k = whole(96);
    const Source gate = kernels::make_source(random_, n, k, ElementType::kF32, type);
    const Source up = kernels::make_source(random_, n, k, ElementType::kBF16, type);
    const Uploaded weight = room(2 * n.padded(), k.padded(), type);
    upload(weight, up, WeightPart::kUp, 0);
    upload(weight, gate, WeightPart::kGate, 0);
    const Both<std::byte> x = activations(19, 96, 96, type);
    Both<std::byte> y(19 * n.padded() * element_bytes(type));
    under_test_.run(GateUpOp{.x = x.device(),
                             .x_type = type,
                             .x_stride = 96,
                             .rows = 19,
                             .w = weight.matrix,
                             .activated = y.device(),
                             .activated_stride = n.padded()});
    const std::vector<std::byte> after = y.result();
    std::vector<float> got;
    std::vector<double> wanted;
    for (int64_t row = 0; row < 19; ++row) {
      for (int64_t column = 0; column < n.padded(); ++column) {
        const double g = product(x, type, row * 96, gate, column);
        got.push_back(kernels::get(after.data(), type, row * n.padded() + column));
        wanted.push_back(g / (1 + std::exp(-g)) * product(x, type, row * 96, up, column));
      }
    }
    EXPECT_LT(kernels::relative_error(got, wanted), type == ElementType::kF32 ? 1e-5 : 5e-3);
  }
}

TEST_F(DenseOps, EmbeddingsAreTheRowsOfTheirIds) {
  for (const ElementType type : kTypes) {
    under_test_.clear();
    const Source table =
        kernels::make_source(random_, whole(259), whole(172), ElementType::kF16, type);
    const Uploaded weight = room(table.n.padded(), table.k.padded(), type);
    upload(weight, table, WeightPart::kRows, 0);
    const Both<int32_t> ids({0, 258, 31, 32, 32, 100});
    const int64_t k = table.k.padded();
    const Both<float> y(6 * k);
    under_test_.run(EmbedOp{
        .ids = ids.device(), .rows = 6, .table = weight.matrix, .y = y.device(), .y_stride = k});
    const std::vector<float> got = y.result();
    for (int64_t i = 0; i < 6 * k; ++i) {
      const int64_t id = ids.host[static_cast<size_t>(i / k)];
      ASSERT_EQ(got[static_cast<size_t>(i)], table.padded[static_cast<size_t>(id * k + i % k)]);
    }
  }
}

// A residual in bfloat16: sums of fp32, rounded once.
TEST_F(DenseOps, EmbeddingsAndSumsInBFloat16AreTheRoundedOnes) {
  const int64_t rows = 9;
  const int64_t n = 96;
  const int64_t stride = n + 32;
  const Source source =
      kernels::make_source(random_, whole(n), whole(288), ElementType::kBF16, ElementType::kBF16);
  const Uploaded weight = room(n, 288, ElementType::kBF16);
  upload(weight, source, WeightPart::kRows, 0);
  const Both<std::byte> x = activations(rows, 288, 288, ElementType::kBF16);
  Both<BFloat16> narrow(rows * stride);
  Both<float> wide(rows * stride);
  for (size_t i = 0; i < wide.host.size(); ++i) {
    narrow.host[i] = f32_to_bf16(uniform(random_, -4.0F, 4.0F));
    wide.host[i] = bf16_to_f32(narrow.host[i]);
  }
  narrow.copy_in();
  wide.copy_in();
  GemmOp op{.x = x.device(),
            .x_stride = 288,
            .rows = rows,
            .w = weight.matrix,
            .y = wide.device(),
            .y_stride = stride,
            .accumulate = true};
  under_test_.run(op);
  op.y = narrow.device();
  op.y_type = ElementType::kBF16;
  under_test_.run(op);
  const std::vector<float> sums = wide.result();
  const std::vector<BFloat16> got = narrow.result();
  int64_t differing = 0;
  for (int64_t i = 0; i < rows * stride; ++i) {
    const auto at = static_cast<size_t>(i);
    if (i % stride < n) {
      // A library may round the product before it adds, as cuBLASLt was seen to.
      const float before = std::abs(bf16_to_f32(narrow.host[at]));
      ASSERT_NEAR(bf16_to_f32(got[at]), sums[at], (before + 2 * std::abs(sums[at])) / 256) << i;
      differing += got[at] == f32_to_bf16(sums[at]) ? 0 : 1;
    } else {
      ASSERT_EQ(got[at], narrow.host[at]) << i;
    }
  }
  if (!under_test_.device().caps().kernels.starts_with("cuda-cublaslt")) {
    EXPECT_EQ(differing, 0);
  }

  const Both<int32_t> ids({3, 0, 95});
  const Both<BFloat16> y(3 * 288);
  under_test_.run(EmbedOp{.ids = ids.device(),
                          .rows = 3,
                          .table = weight.matrix,
                          .y = y.device(),
                          .y_type = ElementType::kBF16,
                          .y_stride = 288});
  const std::vector<BFloat16> embedded = y.result();
  for (int64_t i = 0; i < 3 * 288; ++i) {
    const int64_t id = ids.host[static_cast<size_t>(i / 288)];
    ASSERT_EQ(embedded[static_cast<size_t>(i)],
              f32_to_bf16(source.padded[static_cast<size_t>(id * 288 + i % 288)]));
  }
}

TEST_F(DenseOps, ARowDoesNotDependOnItsCompany) {
  const Source source =
      kernels::make_source(random_, whole(96), whole(288), ElementType::kBF16, kTypes[1]);
  const Uploaded weight = room(96, 288, ElementType::kBF16);
  upload(weight, source, WeightPart::kRows, 0);
  const Both<std::byte> x = activations(40, 288, 288, ElementType::kBF16);
  Both<float> together(40 * 96);
  GemmOp op{.x = x.device(),
            .x_stride = 288,
            .rows = 40,
            .w = weight.matrix,
            .y = together.device(),
            .y_stride = 96};
  under_test_.run(op);
  const std::vector<float> all = together.result();
  if (under_test_.device().caps().kernels.starts_with("cuda-cublaslt")) {
    // Numbers of rows between two powers of two are one shape to it (library_products.h).
    for (const int64_t rows : {33, 36, 39}) {
      Both<float> fewer(rows * 96);
      op.rows = rows;
      op.y = fewer.device();
      under_test_.run(op);
      EXPECT_EQ(fewer.result(), std::vector<float>(all.begin(), all.begin() + rows * 96)) << rows;
    }
    return;
  }
  for (const int64_t row : {0, 7, 8, 21, 39}) {
    Both<float> alone(96);
    op.x = x.device() + row * 288 * 2;
    op.rows = 1;
    op.y = alone.device();
    under_test_.run(op);
    EXPECT_EQ(alone.result(),
              std::vector<float>(all.begin() + row * 96, all.begin() + (row + 1) * 96))
        << "row " << row;
  }
}

}  // namespace
}  // namespace tandem::device
