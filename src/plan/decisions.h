// The decisions that policies take, each view -> decision with plain data. Implementations are
// leaves in scheduler/policies. Engine thread only; a decision may keep state between calls but no
// pointer into a view.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "plan/views.h"

namespace tandem {

// What one step will do.
struct StepPlan {
  struct Slice {
    SequenceId sequence{};
    int32_t tokens = 0;  // the next ones of the sequence
  };
  std::vector<SequenceId>
      preempt;  // running ones whose KV is dropped before anything else; recomputed later
  std::vector<SequenceId>
      admit;  // waiting ones that become running, in this order; each has a slice
  std::vector<Slice> slices;
};

class StepPolicy {
 public:
  virtual ~StepPolicy() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  virtual StepPlan plan(const SystemView& view) = 0;
};

}  // namespace tandem
