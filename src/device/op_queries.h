// What follows from the descriptions of ops.h, for any op. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>

#include "device/ops.h"

namespace tandem::device {

// What an op is called in a timeline, and how large it is.
struct OpLabel {
  const char* name = "";
  const char* detail = nullptr;  // the unit of `value`
  int64_t value = 0;
};

inline OpLabel label_of(const Op& op) {
  return std::visit(
      []<class AnyOp>(const AnyOp& any) {
        constexpr OpInfo kInfo = OpTraits<AnyOp>::kInfo;
        return OpLabel{kInfo.name, kInfo.unit, OpTraits<AnyOp>::amount(any)};
      },
      op);
}

// By index in Op.
inline constexpr auto kOpNames = []<size_t... kIndex>(std::index_sequence<kIndex...>) {
  return std::array{OpTraits<std::variant_alternative_t<kIndex, Op>>::kInfo.name...};
}
(std::make_index_sequence<std::variant_size_v<Op>>());

inline bool runs_on_hollow(const Op& op) {
  return std::visit(
      []<class AnyOp>(const AnyOp&) { return OpTraits<AnyOp>::kInfo.on_hollow == OnHollow::kRuns; },
      op);
}

template <class See>
void for_each_operand(const Op& op, See&& see) {
  std::visit([&]<class AnyOp>(const AnyOp& any) { OpTraits<AnyOp>::operands(any, see); }, op);
}

// The weights of a product, which tell one from another; null for other ops.
inline const WeightMatrix* product_weights(const Op& op) {
  return std::visit(
      []<class AnyOp>(const AnyOp& any) -> const WeightMatrix* {
        if constexpr (requires { any.x, any.w; }) {
          return &any.w;
        } else {
          return nullptr;
        }
      },
      op);
}

// The bytes that change place, of an op that only moves them; null for other ops.
inline const CopyOp* copy_of(const Op& op) {
  if (const auto* move = std::get_if<KvMoveOp>(&op)) {
    return &move->copy;
  }
  return std::get_if<CopyOp>(&op);
}

// Bytes that the op reads and writes.
inline int64_t moved_bytes(const Op& op) {
  int64_t bytes = 0;
  for_each_operand(op, [&](const Operand& operand) {
    const bool both = operand.access == Access::kUpdate || operand.access == Access::kScratch;
    bytes += operand.moved_bytes * (both ? 2 : 1);
  });
  return bytes;
}

}  // namespace tandem::device
