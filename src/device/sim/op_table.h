// What ops really take on a machine that was measured, in place of a formula. By kind and size: a
// line through measured points for each product and for each other kind of op, and five
// coefficients for attention. Plain data; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "device/ops.h"

namespace tandem::device {

struct OpPoint {
  int64_t amount = 0;  // of amount_of
  double nanos = 0;
};

// Ops that differ by their amount alone.
struct OpKey {
  size_t kind = 0;  // index in Op
  int64_t n = 0;    // of a product, else 0
  int64_t k = 0;
  auto operator<=>(const OpKey&) const = default;
};

struct OpLine {
  OpKey key;
  std::vector<OpPoint> points;  // amounts rise; at least one

  // Between two points by the line through them, beyond the last in proportion to it, below the
  // first as that.
  [[nodiscard]] double nanos(int64_t amount) const;
};

// In any case, of a slice, a row, a (row, token) pair of a prefill chunk, a token of a decode row.
using AttentionFeatures = std::array<double, 5>;

struct OpTable {
  std::vector<OpLine> lines;  // by key
  AttentionFeatures attention{};

  // An op whose like was not measured takes nothing.
  [[nodiscard]] Nanos time(const Op& op) const;
};

OpKey key_of(const Op& op);
// What the time of ops of one key depends on, but for attention: rows of a product, bytes of the
// others.
int64_t amount_of(const Op& op);
AttentionFeatures features_of(const AttentionOp& op);

}  // namespace tandem::device
