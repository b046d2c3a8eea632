#include "device/sim/op_table.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <variant>

#include "device/emulated/cost_model.h"
#include "device/op_queries.h"

namespace tandem::device {
namespace {

// A file may say anything; a day is longer than any op.
constexpr double kMostNanos = 86400e9;

Nanos as_time(double nanos) { return Nanos{static_cast<int64_t>(std::min(nanos, kMostNanos))}; }

}  // namespace

double OpLine::nanos(int64_t amount) const {
  const auto after = std::ranges::lower_bound(points, amount, {}, &OpPoint::amount);
  if (after == points.begin()) {
    return after->nanos;
  }
  const OpPoint& before = *std::prev(after);
  if (after == points.end()) {
    return before.nanos * static_cast<double>(amount) /
           static_cast<double>(std::max<int64_t>(before.amount, 1));
  }
  const double share = static_cast<double>(amount - before.amount) /
                       static_cast<double>(after->amount - before.amount);
  return std::lerp(before.nanos, after->nanos, share);
}

OpKey key_of(const Op& op) {
  const WeightMatrix* weights = product_weights(op);
  return weights == nullptr ? OpKey{.kind = op.index()}
                            : OpKey{.kind = op.index(), .n = weights->n, .k = weights->k};
}

int64_t amount_of(const Op& op) {
  return product_weights(op) != nullptr ? label_of(op).value : moved_bytes(op);
}

AttentionFeatures features_of(const AttentionOp& op) {
  const AttentionLoad load = attention_load(op.batch);
  return {1, static_cast<double>(op.batch.shape.slices), static_cast<double>(op.batch.shape.rows),
          load.prefill_pairs, load.decode_context};
}

Nanos OpTable::time(const Op& op) const {
  if (const auto* attend = std::get_if<AttentionOp>(&op)) {
    const AttentionFeatures features = features_of(*attend);
    return as_time(std::inner_product(features.begin(), features.end(), attention.begin(), 0.0));
  }
  const auto line = std::ranges::lower_bound(lines, key_of(op), {}, &OpLine::key);
  return line == lines.end() || line->key != key_of(op) ? Nanos{0}
                                                        : as_time(line->nanos(amount_of(op)));
}

}  // namespace tandem::device
