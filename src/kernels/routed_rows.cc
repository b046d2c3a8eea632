#include "kernels/routed_rows.h"

#include <cstring>

#include "kernels/kv_store.h"

namespace tandem::kernels {

void tail_gather(const TailGatherArgs& args, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    if (args.attended != nullptr) {
      std::memcpy(args.attended + row * args.attended_pitch_bytes,
                  args.returns + args.return_rows[row] * args.attended_row_bytes,
                  static_cast<size_t>(args.attended_row_bytes));
    }
    if (args.residual != nullptr) {
      std::memcpy(args.residual + row * args.residual_stride,
                  args.residual_store + args.residual_slots[row] * args.store_stride,
                  static_cast<size_t>(args.residual_columns) * sizeof(float));
    }
  }
}

void kv_append(const KvAppendArgs& args, int64_t kv_head_begin, int64_t kv_head_end) {
  const RoutedRow routed(args.layout, args.heads);
  const int64_t head_bytes = args.layout.padded_head_dim * element_bytes(args.layout.type);
  const std::byte* keys = args.routed + routed.key_offset();
  const std::byte* values = args.routed + routed.value_offset();
  const KvPlace place{args.kv, args.layer, args.block, args.slot};
  for (int64_t head = kv_head_begin; head < kv_head_end; ++head) {
    store_key(args.layout, place, head, keys + head * head_bytes);
    store_value(args.layout, place, head, values + head * head_bytes);
  }
}

}  // namespace tandem::kernels
