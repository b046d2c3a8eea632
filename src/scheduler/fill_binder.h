// The simplest binder: at every stage as many ready visitors as there is room for, lowest stage of
// the group first. Keeps no state.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "plan/decisions.h"

namespace tandem {

class FillBinder final : public Binder {
 public:
  // `stage_cap` >= 0: visitors at a stage at most.
  explicit FillBinder(int32_t stage_cap = std::numeric_limits<int32_t>::max());
  void bind(const BindView& view, BindDecision& decision) override;

 private:
  int32_t stage_cap_;
};

// For descriptors of policies that limit visitors by room alone.
inline std::unique_ptr<Binder> fill_binder() { return std::make_unique<FillBinder>(); }

}  // namespace tandem
