#include "bench/device_work.h"

#include <algorithm>
#include <cstdint>
#include <variant>

#include "device/op_queries.h"

namespace tandem::bench {
namespace {

int64_t token_bytes(const kernels::KvLayout& layout) {
  return int64_t{2} * layout.kv_heads * layout.padded_head_dim * element_bytes(layout.type);
}

// Tokens that rows of contexts 1 .. `context` attend to together.
double attended_by_all(double context, double window) {
  const double whole = window > 0 ? std::min(context, window) : context;
  return whole * (whole + 1) / 2 + (context - whole) * window;
}

Work attention_work(const device::AttentionOp& op) {
  const device::AttentionBatch& batch = op.batch;
  double kv_tokens = 0;
  double pairs = 0;  // of a row and a token that it attends to
  for (int32_t i = 0; i < batch.shape.slices; ++i) {
    const kernels::AttentionSlice& slice = batch.host_slices[i];
    const double context = slice.first_position + slice.row_count;
    const double window = batch.window;
    pairs += attended_by_all(context, window) - attended_by_all(slice.first_position, window);
    kv_tokens += window > 0 ? std::min(context, window + slice.row_count - 1) : context;
  }
  const double columns = static_cast<double>(batch.heads) * batch.layout.padded_head_dim;
  const double row_bytes =
      columns * static_cast<double>(sizeof(float) + element_bytes(op.out_type));
  return {.bytes = kv_tokens * static_cast<double>(token_bytes(batch.layout)) +
                   batch.shape.rows * row_bytes,
          .operations = 4.0 * pairs * batch.heads * batch.layout.head_dim};
}

}  // namespace

Work work_of(const device::Op& op) {
  if (const auto* attention = std::get_if<device::AttentionOp>(&op)) {
    return attention_work(*attention);
  }
  Work work{.bytes = static_cast<double>(device::moved_bytes(op))};
  if (const auto* write = std::get_if<device::RopeWriteOp>(&op)) {
    // The description has K and V read, too, because the rest of a block stays as it is.
    work.bytes -= static_cast<double>(write->rows * token_bytes(write->layout));
  }
  if (const device::WeightMatrix* w = device::product_weights(op)) {
    const auto rows = static_cast<double>(device::label_of(op).value);
    work.operations = 2.0 * rows * static_cast<double>(w->n) * static_cast<double>(w->k);
  }
  return work;
}

double ceiling_seconds(const Work& work, const DeviceCeilings& ceilings) {
  const double moving =
      ceilings.bytes_per_second > 0 ? work.bytes / ceilings.bytes_per_second : 0.0;
  const double computing =
      ceilings.operations_per_second > 0 ? work.operations / ceilings.operations_per_second : 0.0;
  return std::max(moving, computing);
}

}  // namespace tandem::bench
