// Planned attention over paged KV on a device, and the way of KV between the tiers, against double
// precision. K and V are written by RopeWriteOp or moved by KvMoveOp, so the device may arrange
// them as it likes.
#include <cmath>

#include "device_under_test.h"
#include "machine.h"

namespace tandem::device {
namespace {

using kernels::AttentionSlice;
using kernels::KvLayout;
using kernels::Random;
using kernels::uniform;

struct Shape {
  ElementType type = ElementType::kBF16;
  int32_t kv_heads = 2;
  int32_t group = 4;
  int32_t head_dim = 64;
  int32_t window = 0;
};

struct SliceShape {
  int32_t first_position = 0;
  int32_t rows = 1;
};

class AttentionOps : public testing::Test {
 protected:
  AttentionOps() { under_test_.clear(); }

  // A pool in the host's arrangement with random tokens, moved to the device.
  void fill_pool(const Shape& shape, int64_t blocks) {
    under_test_.clear();
    shape_ = shape;
    layout_ = {shape.type, 2, shape.kv_heads, shape.head_dim, (shape.head_dim + 31) / 32 * 32, 32};
    Device& device = under_test_.device();
    const int64_t bytes = blocks * layout_.block_bytes();
    pool_ = std::make_unique<Both<std::byte>>(bytes);
    pinned_ = std::move(device.allocate(MemoryKind::kHostPinned, bytes)).value();
    for (int64_t block = 0; block < blocks; ++block) {
      for (int64_t layer = 0; layer < 2; ++layer) {
        for (int64_t head = 0; head < shape.kv_heads; ++head) {
          fill_head(block, layer, head);
        }
      }
    }
    under_test_.run(KvMoveOp{.copy = {pool_->device(), pinned_->data(), bytes}, .layout = layout_});
  }

  [[nodiscard]] std::vector<float> attend(const std::vector<SliceShape>& shapes,
                                          ElementType out_type = ElementType::kF32,
                                          ElementType q_type = ElementType::kF32) {
    slices_.clear();
    tables_.clear();
    int32_t row = 0;
    int32_t block = 0;
    AttentionShape known{.slices = static_cast<int32_t>(shapes.size())};
    for (const SliceShape& each : shapes) {
      const int32_t context = each.first_position + each.rows;
      std::vector<int32_t> table;
      for (int32_t i = 0; i * 32 < context; ++i) {
        table.push_back(block++);
      }
      std::shuffle(table.begin(), table.end(), random_);
      tables_.push_back(std::make_unique<Both<int32_t>>(table));
      slices_.push_back({row, each.rows, each.first_position, tables_.back()->device()});
      row += each.rows;
      known.max_context = std::max(known.max_context, context);
      known.splits += (context + kernels::kSplitTokens - 1) / kernels::kSplitTokens;
    }
    known.rows = row;
    const int64_t heads = shape_.kv_heads * shape_.group;
    const int64_t columns = heads * layout_.padded_head_dim;
    q_ = std::make_unique<Both<float>>(row * columns);
    for (int64_t i = 0; i < row * columns; ++i) {
      q_->host[static_cast<size_t>(i)] =
          i % layout_.padded_head_dim < shape_.head_dim ? uniform(random_, -3.0F, 3.0F) : 0.0F;
    }
    q_->copy_in();
    const Both<BFloat16> rounded_q = round_queries();
    const bool is_rounded = q_type == ElementType::kBF16;
    if (is_rounded) {
      std::ranges::transform(rounded_q.host, q_->host.begin(), bf16_to_f32);
    }
    const Both<AttentionSlice> on_device(slices_);
    const int64_t workspace_bytes = under_test_.device().formats().attention_workspace_bytes(
        {.layout = layout_,
         .heads = static_cast<int32_t>(heads),
         .max_context = known.max_context,
         .threads = under_test_.device().caps().threads});
    const Both<float> workspace(workspace_bytes / 4);
    const Both<float> wide(row * columns);
    const Both<BFloat16> narrow(row * columns);
    const bool is_wide = out_type == ElementType::kF32;
    const AttentionBatch batch{.slices = on_device.device(),
                               .host_slices = slices_.data(),
                               .shape = known,
                               .layout = layout_,
                               .heads = static_cast<int32_t>(heads),
                               .window = shape_.window,
                               .workspace = workspace.device(),
                               .workspace_floats = workspace_bytes / 4};
    under_test_.run(AttentionPlanOp{batch});
    under_test_.run(AttentionOp{
        .batch = batch,
        .q = is_rounded ? static_cast<void*>(rounded_q.device()) : static_cast<void*>(q_->device()),
        .q_type = q_type,
        .kv = pool_->device(),
        .layer = 1,
        .scale = scale(),
        .out = is_wide ? static_cast<void*>(wide.device()) : static_cast<void*>(narrow.device()),
        .out_stride = columns,
        .out_type = out_type});
    EXPECT_FALSE(workspace.result().empty());  // and its guards are whole
    if (is_wide) {
      return wide.result();
    }
    std::vector<float> results;
    std::ranges::transform(narrow.result(), std::back_inserter(results), bf16_to_f32);
    return results;
  }

  [[nodiscard]] std::vector<double> oracle() {
    const int64_t heads = shape_.kv_heads * shape_.group;
    const int64_t width = layout_.padded_head_dim;
    std::vector<double> out(q_->host.size(), 0.0);
    for (size_t s = 0; s < slices_.size(); ++s) {
      for (int64_t r = 0; r < slices_[s].row_count; ++r) {
        const int64_t row = slices_[s].row_begin + r;
        for (int64_t head = 0; head < heads; ++head) {
          add_head(s, slices_[s].first_position + r + 1, out.data() + (row * heads + head) * width,
                   q_->host.data() + (row * heads + head) * width, head / shape_.group);
        }
      }
    }
    return out;
  }

  Shape shape_;
  KvLayout layout_;
  std::unique_ptr<Both<std::byte>> pool_;
  std::unique_ptr<Memory> pinned_;
  DeviceUnderTest& under_test_ = DeviceUnderTest::get();
  Random random_{6};

 private:
  [[nodiscard]] Both<BFloat16> round_queries() const {
    std::vector<BFloat16> rounded;
    std::ranges::transform(q_->host, std::back_inserter(rounded), f32_to_bf16);
    return Both<BFloat16>(std::move(rounded));
  }
  [[nodiscard]] float scale() const {
    return 1.0F / std::sqrt(static_cast<float>(shape_.head_dim));
  }
  void fill_head(int64_t block, int64_t layer, int64_t head) {
    for (int64_t slot = 0; slot < 32; ++slot) {
      for (int64_t dim = 0; dim < layout_.padded_head_dim; ++dim) {
        const bool real = dim < layout_.head_dim;
        kernels::put(pinned_->data() + layout_.key_offset(block, layer, head), layout_.type,
                     layout_.key_element(slot, dim), real ? uniform(random_, -2.0F, 2.0F) : 0.0F);
        kernels::put(pinned_->data() + layout_.value_offset(block, layer, head), layout_.type,
                     layout_.value_element(slot, dim), real ? uniform(random_, -2.0F, 2.0F) : 0.0F);
      }
    }
  }
  void add_head(size_t s, int64_t end, double* out, const float* q, int64_t kv_head) {
    const int64_t begin = shape_.window == 0 ? 0 : std::max<int64_t>(end - shape_.window, 0);
    double total = 0;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t block = tables_[s]->host[static_cast<size_t>(t / 32)];
      const std::byte* key = pinned_->data() + layout_.key_offset(block, 1, kv_head);
      const std::byte* value = pinned_->data() + layout_.value_offset(block, 1, kv_head);
      double score = 0;
      for (int64_t dim = 0; dim < shape_.head_dim; ++dim) {
        score +=
            static_cast<double>(q[dim]) *
            static_cast<double>(kernels::get(key, layout_.type, layout_.key_element(t % 32, dim)));
      }
      const double weight = std::exp(score * static_cast<double>(scale()) - 30.0);
      total += weight;
      for (int64_t dim = 0; dim < shape_.head_dim; ++dim) {
        out[dim] += weight * static_cast<double>(kernels::get(value, layout_.type,
                                                              layout_.value_element(t % 32, dim)));
      }
    }
    for (int64_t dim = 0; dim < shape_.head_dim; ++dim) {
      out[dim] /= total;
    }
  }

  std::vector<AttentionSlice> slices_;
  std::vector<std::unique_ptr<Both<int32_t>>> tables_;
  std::unique_ptr<Both<float>> q_;
};

TEST_F(AttentionOps, DecodesAndChunksAgreeWithDoublePrecision) {
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
    for (const int32_t head_dim : {40, 64, 128}) {
      for (const int32_t window : {0, 1, 100, 300}) {
        fill_pool({type, 2, window == 0 ? 4 : 3, head_dim, window}, 80);
        const std::vector<float> got =
            attend({{0, 1}, {14, 3}, {254, 4}, {255, 1}, {700, 1}, {40, 33}});
        EXPECT_LT(kernels::relative_error(got, oracle()), 1e-5)
            << element_name(type) << ", head dim " << head_dim << ", window " << window;
      }
    }
  }
}

// Queries may be rounded, and parts of a context, besides the results: what libraries do. Decode
// rows before chunks, behind them, among them, alone; contexts that end with a block.
TEST_F(AttentionOps, ResultsInBFloat16AgreeWithDoublePrecision) {
  const std::vector<std::vector<SliceShape>> steps = {
      {{0, 1}, {255, 1}, {700, 1}, {31, 1}, {14, 3}, {254, 4}, {40, 33}},
      {{40, 33}, {254, 2}, {700, 1}, {0, 1}, {63, 1}},
      {{0, 1}, {14, 3}, {254, 4}, {255, 1}, {700, 1}, {40, 33}},
      {{511, 1}},
      {{0, 300}}};
  for (const auto& [head_dim, group] : {std::pair{64, 4}, {128, 3}, {128, 8}, {96, 4}, {128, 1}}) {
    for (const int32_t window : {0, 1, 100}) {
      for (const ElementType q_type : {ElementType::kF32, ElementType::kBF16}) {
        fill_pool({ElementType::kBF16, 2, group, head_dim, window}, 80);
        for (const std::vector<SliceShape>& step : steps) {
          const std::vector<float> got = attend(step, ElementType::kBF16, q_type);
          EXPECT_LT(kernels::relative_error(got, oracle()), 8e-3)
              << "head dim " << head_dim << ", group " << group << ", window " << window
              << ", step with " << step.size() << " slices, queries in " << element_name(q_type);
        }
      }
    }
  }
}

TEST_F(AttentionOps, ALongContextAgreesWithDoublePrecision) {
  fill_pool({ElementType::kBF16, 1, 4, 128, 0}, 260);
  const std::vector<float> got = attend({{8191, 1}});
  EXPECT_LT(kernels::relative_error(got, oracle()), 1e-5);
  const std::vector<float> narrow = attend({{8191, 1}}, ElementType::kBF16);
  EXPECT_LT(kernels::relative_error(narrow, oracle()), 8e-3);
}

// Down and up again gives the bytes that were there; what comes down has the host's arrangement.
TEST_F(AttentionOps, KvThatChangesTierAndComesBackIsTheSameBitForBit) {
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
    fill_pool({type, 3, 1, 80, 0}, 5);
    const std::vector<std::byte> before(pinned_->data(), pinned_->data() + pinned_->bytes());
    std::memset(pinned_->data(), 0, static_cast<size_t>(pinned_->bytes()));
    const int64_t block = layout_.block_bytes();
    // In pieces of heads, as the executor moves them.
    for (int64_t at = 0; at < 5 * block; at += 4 * layout_.head_bytes()) {
      const int64_t piece = std::min(4 * layout_.head_bytes(), 5 * block - at);
      under_test_.run(KvMoveOp{.copy = {pinned_->data() + at, pool_->device() + at, piece},
                               .layout = layout_,
                               .to_host = true,
                               .first_head = at % block / layout_.head_bytes()});
    }
    EXPECT_EQ(std::memcmp(pinned_->data(), before.data(), before.size()), 0);
  }
}

}  // namespace
}  // namespace tandem::device
