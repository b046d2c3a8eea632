// Ops that treat rows one by one, and copies, on a device against the host's reference kernels.
#include <cmath>

#include "device_under_test.h"
#include "kernels/cast.h"
#include "kernels/routed_row.h"
#include "machine.h"

namespace tandem::device {
namespace {

using kernels::pick;
using kernels::Random;
using kernels::uniform;

constexpr ElementType kRowTypes[] = {ElementType::kF32, ElementType::kBF16};

class RowOps : public testing::Test {
 protected:
  RowOps() { under_test_.clear(); }
  std::vector<float> floats(int64_t count, float range = 2.0F) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) {
      value = uniform(random_, -range, range);
    }
    return values;
  }
  std::vector<int32_t> distinct(int64_t count, int32_t below) {
    std::vector<int32_t> all(static_cast<size_t>(below));
    for (int32_t i = 0; i < below; ++i) {
      all[static_cast<size_t>(i)] = i;
    }
    std::shuffle(all.begin(), all.end(), random_);
    all.resize(static_cast<size_t>(count));
    return all;
  }
  static std::vector<float> widened(const std::vector<std::byte>& bytes, ElementType type) {
    std::vector<float> values(bytes.size() / static_cast<size_t>(element_bytes(type)));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = kernels::get(bytes.data(), type, static_cast<int64_t>(i));
    }
    return values;
  }
  // Elements that nobody wrote are NaN on both sides.
  static void expect_near(const std::vector<float>& got, const std::vector<float>& wanted,
                          double tolerance) {
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(wanted[i])) {
        ASSERT_TRUE(std::isnan(got[i])) << i;
      } else {
        ASSERT_NEAR(got[i], wanted[i], tolerance * (1 + std::abs(wanted[i]))) << i;
      }
    }
  }

  DeviceUnderTest& under_test_ = DeviceUnderTest::get();
  const kernels::Kernels& reference_ = kernels::table_of(kernels::Isa::kRef);
  Random random_{3};
};

TEST_F(RowOps, CopiesCarryBytesBetweenAndWithinTheTiers) {
  Device& device = under_test_.device();
  auto pinned = std::move(device.allocate(MemoryKind::kHostPinned, 3 << 20)).value();
  for (const int64_t bytes : {int64_t{1}, int64_t{77}, int64_t{4096}, int64_t{3} << 20}) {
    under_test_.clear();
    Both<std::byte> a(bytes);
    Both<std::byte> b(bytes);
    for (int64_t i = 0; i < bytes; ++i) {
      pinned->data()[i] = static_cast<std::byte>(i * 31 + bytes);
    }
    const std::vector<std::byte> wanted(pinned->data(), pinned->data() + bytes);
    under_test_.run(CopyOp{a.device(), pinned->data(), bytes});
    under_test_.run(CopyOp{b.device(), a.device(), bytes});
    std::memset(pinned->data(), 0, static_cast<size_t>(bytes));
    under_test_.run(CopyOp{pinned->data(), b.device(), bytes});
    EXPECT_EQ(std::memcmp(pinned->data(), wanted.data(), wanted.size()), 0);
    EXPECT_EQ(b.result(), wanted);
  }
  under_test_.run(CopyOp{nullptr, nullptr, 0});
}

TEST_F(RowOps, CastsRoundToNearestEvenAndBackExactly) {
  Both<float> x(floats(70 * 112, 1e6F));
  x.host[3] = NAN;
  x.host[4] = -INFINITY;
  x.copy_in();
  Both<BFloat16> narrow(70 * 112);
  Both<float> wide(70 * 100);
  under_test_.run(CastOp{.x = x.device(),
                         .x_stride = 112,
                         .rows = 70,
                         .columns = 100,
                         .y = narrow.device(),
                         .y_stride = 112});
  under_test_.run(CastOp{.x = narrow.device(),
                         .x_type = ElementType::kBF16,
                         .x_stride = 112,
                         .rows = 70,
                         .columns = 100,
                         .y = wide.device(),
                         .y_type = ElementType::kF32,
                         .y_stride = 100});
  const auto got = narrow.result();
  const auto back = wide.result();
  for (size_t row = 0; row < 70; ++row) {
    for (size_t column = 0; column < 112; ++column) {
      const size_t i = row * 112 + column;
      ASSERT_EQ(got[i], column < 100 ? f32_to_bf16(x.host[i]) : 0xffff) << i;
      if (column < 100 && i != 3) {
        ASSERT_EQ(back[row * 100 + column], bf16_to_f32(got[i]));
      }
    }
  }
  EXPECT_TRUE(std::isnan(back[3]));
}

TEST_F(RowOps, RmsNorm) {
  for (const ElementType type : kRowTypes) {
    for (const int64_t hidden : {1, 172, 4096}) {
      under_test_.clear();
      const int64_t stride = (hidden + 31) / 32 * 32;
      Both<float> x(floats(9 * (hidden + 3)));
      Both<float> weight(floats(hidden));
      Both<std::byte> y(9 * stride * element_bytes(type));
      RmsNormOp op{.x = x.device(),
                   .x_stride = hidden + 3,
                   .rows = 9,
                   .hidden = hidden,
                   .weight = weight.device(),
                   .epsilon = 1e-5F,
                   .y = y.device(),
                   .y_type = type,
                   .y_stride = stride};
      under_test_.run(op);
      kernels::RmsNormArgs args{.x = x.host.data(),
                                .x_stride = hidden + 3,
                                .rows = 9,
                                .hidden = hidden,
                                .weight = weight.host.data(),
                                .epsilon = 1e-5F,
                                .y = y.host.data(),
                                .y_type = type,
                                .y_stride = stride};
      reference_.rms_norm(args, 0, 9);
      const double tolerance = type == ElementType::kF32 ? 1e-5 : 8e-3;
      expect_near(widened(y.result(), type), widened(y.host, type), tolerance);

      Both<BFloat16> narrow(std::ssize(x.host));  // a residual in bfloat16
      for (size_t i = 0; i < x.host.size(); ++i) {
        narrow.host[i] = f32_to_bf16(x.host[i]);
        x.host[i] = bf16_to_f32(narrow.host[i]);
      }
      narrow.copy_in();
      op.x = narrow.device();
      op.x_type = ElementType::kBF16;
      under_test_.run(op);
      reference_.rms_norm(args, 0, 9);
      expect_near(widened(y.result(), type), widened(y.host, type), tolerance);
    }
  }
}

struct NormShape {
  int64_t rows;
  int64_t hidden;
  int64_t x_stride;
  int64_t y_stride;
};

TEST_F(RowOps, ANormedRowDoesNotDependOnTheOthers) {
  for (const NormShape& shape : {NormShape{300, 4096, 4096, 4096}, NormShape{7, 5120, 5120, 5152},
                                 NormShape{7, 8200, 8208, 8224}, NormShape{7, 1028, 1031, 1031}}) {
    under_test_.clear();
    Both<float> x(floats(shape.rows * shape.x_stride));
    Both<float> weight(floats(shape.hidden));
    Both<BFloat16> y(shape.rows * shape.y_stride);
    Both<BFloat16> last(shape.y_stride);
    RmsNormOp op{.x = x.device(),
                 .x_stride = shape.x_stride,
                 .rows = shape.rows,
                 .hidden = shape.hidden,
                 .weight = weight.device(),
                 .epsilon = 1e-5F,
                 .y = y.device(),
                 .y_stride = shape.y_stride};
    under_test_.run(op);
    const std::vector<BFloat16> all = y.result();
    for (int64_t row = 0; row < shape.rows; ++row) {
      const float* of_row = x.host.data() + row * shape.x_stride;
      double squares = 0.0;
      for (int64_t i = 0; i < shape.hidden; ++i) {
        squares += static_cast<double>(of_row[i]) * of_row[i];
      }
      const double factor = 1.0 / std::sqrt(squares / static_cast<double>(shape.hidden) + 1e-5);
      for (int64_t i = 0; i < shape.y_stride; ++i) {
        const double wanted =
            i < shape.hidden ? of_row[i] * factor * weight.host[static_cast<size_t>(i)] : 0.0;
        ASSERT_NEAR(bf16_to_f32(all[static_cast<size_t>(row * shape.y_stride + i)]), wanted,
                    8e-3 * (1 + std::abs(wanted)))
            << row << " " << i;
      }
    }
    op.x = x.device() + (shape.rows - 1) * shape.x_stride;
    op.rows = 1;
    op.y = last.device();
    under_test_.run(op);
    EXPECT_EQ(last.result(), std::vector<BFloat16>(all.end() - shape.y_stride, all.end()));
  }
}

TEST_F(RowOps, RopeTableIsExactFarOut) {
  Both<int32_t> positions({0, 1, 131071, 1000003});
  Both<double> frequencies({1.0, 0.1234567, 1e-5});
  Both<float> cos(12);
  Both<float> sin(12);
  under_test_.run(RopeTableOp{positions.device(), 4, frequencies.device(), 3, 1.25F, cos.device(),
                              sin.device()});
  const auto c = cos.result();
  const auto s = sin.result();
  for (size_t i = 0; i < 12; ++i) {
    const double angle = positions.host[i / 3] * frequencies.host[i % 3];
    EXPECT_NEAR(c[i], std::cos(angle) * 1.25, 1e-7);
    EXPECT_NEAR(s[i], std::sin(angle) * 1.25, 1e-7);
  }
}

struct RopeShape {
  ElementType type;
  int32_t head_dim;
  bool norm;
};

class Rope : public RowOps {
 protected:
  static constexpr int32_t kHeads = 6;
  static constexpr int64_t kRows = 7;

  void prepare(const RopeShape& shape) {
    under_test_.clear();
    layout_ = {shape.type, 2, 3, shape.head_dim, (shape.head_dim + 31) / 32 * 32, 32};
    const int64_t width = layout_.padded_head_dim;
    stride_ = (kHeads + 6) * width + 32;
    std::vector<float> qkv = floats(kRows * stride_);
    for (size_t i = 0; i < qkv.size(); ++i) {
      const auto column = static_cast<int64_t>(i) % stride_;
      qkv[i] = column % width < layout_.head_dim ? qkv[i] : 0.0F;
    }
    qkv_ = std::make_unique<Both<float>>(std::move(qkv));
    cos_ = std::make_unique<Both<float>>(floats(kRows * shape.head_dim / 2, 1.0F));
    sin_ = std::make_unique<Both<float>>(floats(kRows * shape.head_dim / 2, 1.0F));
    q_norm_ = std::make_unique<Both<float>>(floats(shape.head_dim));
    k_norm_ = std::make_unique<Both<float>>(floats(shape.head_dim));
  }
  // The operands that both ops have, on the device or here.
  template <class RopeOp>
  void fill(RopeOp& op, bool norm, bool on_device) {
    const auto at = [on_device](Both<float>& both) {
      return on_device ? both.device() : both.host.data();
    };
    op.qkv = at(*qkv_);
    op.qkv_stride = stride_;
    op.rows = kRows;
    op.cos = at(*cos_);
    op.sin = at(*sin_);
    op.heads = kHeads;
    op.layout = layout_;
    op.q_norm = norm ? at(*q_norm_) : nullptr;
    op.k_norm = norm ? at(*k_norm_) : nullptr;
    op.norm_epsilon = 1e-5F;
  }

  // A pool's blocks, whatever the device's own arrangement; its guards are looked at, too.
  std::vector<std::byte> as_the_host_has_it(const Both<std::byte>& kv) {
    const auto bytes = static_cast<int64_t>(kv.result().size());
    const std::unique_ptr<Memory> pinned =
        std::move(under_test_.device().allocate(MemoryKind::kHostPinned, bytes)).value();
    under_test_.run(
        KvMoveOp{.copy = {pinned->data(), kv.device(), bytes}, .layout = layout_, .to_host = true});
    return {pinned->data(), pinned->data() + bytes};
  }

  kernels::KvLayout layout_;
  int64_t stride_ = 0;
  std::unique_ptr<Both<float>> qkv_;
  std::unique_ptr<Both<float>> cos_;
  std::unique_ptr<Both<float>> sin_;
  std::unique_ptr<Both<float>> q_norm_;
  std::unique_ptr<Both<float>> k_norm_;
};

constexpr RopeShape kRopeShapes[] = {
    {ElementType::kF32, 80, false},  {ElementType::kBF16, 128, false},
    {ElementType::kBF16, 22, true},  {ElementType::kF32, 256, true},
    {ElementType::kBF16, 64, true},  {ElementType::kBF16, 80, true},
    {ElementType::kBF16, 96, false}, {ElementType::kBF16, 256, true}};

TEST_F(Rope, WritesQueriesAndTheTokensOwnSlotsOnly) {
  for (const RopeShape& shape : kRopeShapes) {
    prepare(shape);
    Both<std::byte> kv(3 * layout_.block_bytes());
    Both<int32_t> blocks({2, 2, 2, 0, 0, 1, 2});
    Both<int32_t> slots({0, 1, 31, 7, 8, 30, 15});
    Both<float> q(kRows * kHeads * layout_.padded_head_dim);
    Both<BFloat16> rounded_q(kRows * kHeads * layout_.padded_head_dim);
    for (const bool on_device : {true, false}) {
      RopeWriteOp op;
      fill(op, shape.norm, on_device);
      op.layer = 1;
      op.kv = on_device ? kv.device() : kv.host.data();
      op.blocks = on_device ? blocks.device() : blocks.host.data();
      op.slots = on_device ? slots.device() : slots.host.data();
      op.q = on_device ? q.device() : q.host.data();
      if (on_device) {
        under_test_.run(op);
        op.q = rounded_q.device();
        op.q_type = ElementType::kBF16;
        under_test_.run(op);
      } else {
        reference_.rope_write(op, 0, kRows);
      }
    }
    expect_near(q.result(), q.host, 1e-5);
    std::vector<float> widened_q;
    std::ranges::transform(rounded_q.result(), std::back_inserter(widened_q), bf16_to_f32);
    expect_near(widened_q, q.host, 8e-3);
    expect_near(widened(as_the_host_has_it(kv), shape.type), widened(kv.host, shape.type),
                shape.type == ElementType::kF32 ? 1e-5 : 8e-3);
  }
}

TEST_F(Rope, RoutesRowsAndTheirResiduals) {
  for (const RopeShape& shape : kRopeShapes) {
    prepare(shape);
    const kernels::RoutedRow routed(layout_, kHeads);
    Both<std::byte> ring(10 * routed.bytes());
    Both<int32_t> ring_rows(distinct(kRows, 10));
    Both<float> residual(floats(kRows * 100));
    Both<float> store(12 * 90);
    Both<int32_t> slots(distinct(kRows, 12));
    for (const bool on_device : {true, false}) {
      RopeRouteOp op;
      fill(op, shape.norm, on_device);
      op.ring = on_device ? ring.device() : ring.host.data();
      op.ring_rows = on_device ? ring_rows.device() : ring_rows.host.data();
      op.residual = on_device ? residual.device() : residual.host.data();
      op.residual_stride = 100;
      op.residual_columns = 85;
      op.residual_store = on_device ? store.device() : store.host.data();
      op.store_stride = 90;
      op.residual_slots = on_device ? slots.device() : slots.host.data();
      if (on_device) {
        under_test_.run(op);
      } else {
        reference_.rope_route(op, 0, kRows);
      }
    }
    expect_near(store.result(), store.host, 0);
    const auto got = ring.result();
    for (int64_t row = 0; row < 10; ++row) {
      const auto part = [&](const std::vector<std::byte>& all, int64_t begin, int64_t end,
                            ElementType type) {
        const auto first = all.begin() + row * routed.bytes();
        return widened({first + begin, first + end}, type);
      };
      expect_near(part(got, 0, routed.key_offset(), ElementType::kF32),
                  part(ring.host, 0, routed.key_offset(), ElementType::kF32), 1e-5);
      expect_near(part(got, routed.key_offset(), routed.bytes(), shape.type),
                  part(ring.host, routed.key_offset(), routed.bytes(), shape.type),
                  shape.type == ElementType::kF32 ? 1e-5 : 8e-3);
    }
  }
}

TEST_F(RowOps, GathersAndCastsOfAlignedAndOddRows) {
  for (const int64_t stride : {int64_t{4096}, int64_t{4104}, int64_t{50}, int64_t{33}}) {
    under_test_.clear();
    Both<float> x(floats(9 * stride));
    Both<int32_t> rows(distinct(6, 9));
    Both<float> gathered(6 * stride);
    Both<BFloat16> narrow(9 * stride);
    Both<float> wide(9 * stride);
    const int64_t columns = stride - 3;
    under_test_.run(RowGatherOp{x.device(), stride, rows.device(), 6, gathered.device()});
    under_test_.run(CastOp{.x = x.device(),
                           .x_stride = stride,
                           .rows = 9,
                           .columns = columns,
                           .y = narrow.device(),
                           .y_stride = stride});
    under_test_.run(CastOp{.x = narrow.device(),
                           .x_type = ElementType::kBF16,
                           .x_stride = stride,
                           .rows = 9,
                           .columns = columns,
                           .y = wide.device(),
                           .y_type = ElementType::kF32,
                           .y_stride = stride});
    const std::vector<float> got = gathered.result();
    const std::vector<BFloat16> cast = narrow.result();
    const std::vector<float> back = wide.result();
    for (int64_t i = 0; i < 9 * stride; ++i) {
      const auto at = static_cast<size_t>(i);
      const int64_t row = i / stride;
      const int64_t column = i % stride;
      if (row < 6) {
        const int32_t from = rows.host[static_cast<size_t>(row)];
        ASSERT_EQ(got[at], x.host[static_cast<size_t>(from * stride + column)]) << i;
      }
      ASSERT_EQ(cast[at], column < columns ? f32_to_bf16(x.host[at]) : 0xffff) << i;
      if (column < columns) {
        ASSERT_EQ(back[at], bf16_to_f32(cast[at])) << i;
      } else {
        ASSERT_TRUE(std::isnan(back[at])) << i;
      }
    }
  }
}

TEST_F(RowOps, GathersBringTheNamedRows) {
  const int64_t pitch = 320;
  const int64_t row_bytes = 256;
  Both<std::byte> returns(9 * row_bytes);
  for (std::byte& byte : returns.host) {
    byte = static_cast<std::byte>(pick(random_, 0, 254));
  }
  returns.copy_in();
  Both<float> store(floats(9 * 50));
  Both<int32_t> rows(distinct(6, 9));
  Both<int32_t> slots(distinct(6, 9));
  Both<std::byte> attended(6 * pitch);
  Both<float> residual(6 * 60);
  Both<float> gathered(6 * 50);
  TailGatherOp op{.rows = 6,
                  .returns = returns.device(),
                  .attended_row_bytes = row_bytes,
                  .return_rows = rows.device(),
                  .attended = attended.device(),
                  .attended_pitch_bytes = pitch,
                  .residual_store = store.device(),
                  .store_stride = 50,
                  .residual_slots = slots.device(),
                  .residual = residual.device(),
                  .residual_stride = 60,
                  .residual_columns = 45};
  under_test_.run(op);
  under_test_.run(RowGatherOp{store.device(), 50, slots.device(), 6, gathered.device()});
  op.returns = returns.host.data();
  op.return_rows = rows.host.data();
  op.attended = attended.host.data();
  op.residual_store = store.host.data();
  op.residual_slots = slots.host.data();
  op.residual = residual.host.data();
  reference_.tail_gather(op, 0, 6);
  reference_.row_gather({store.host.data(), 50, slots.host.data(), 6, gathered.host.data()}, 0, 6);
  EXPECT_EQ(attended.result(), attended.host);
  expect_near(residual.result(), residual.host, 0);
  EXPECT_EQ(gathered.result(), gathered.host);
}

}  // namespace
}  // namespace tandem::device
