// The two other rules of "join now, later, or wait" (the first is FillBinder's: whoever is ready).
// Each asks FillBinder how many there is room for.
#pragma once

#include <chrono>
#include <vector>

#include "plan/decisions.h"
#include "scheduler/fill_binder.h"

namespace tandem {

// Offloaded tokens at the same stage go on together, as a cohort: a stage takes its visitors when
// nobody is on the way to it any more, else it is looked at again in the next step (APEX 3.3).
// Keeps no state.
class CohortBinder final : public Binder {
 public:
  void bind(const BindView& view, BindDecision& decision) override;

 private:
  FillBinder fill_;
  std::vector<int32_t> whole_;  // reused
};

// In steps with lanes a stage waits until everybody on the way to it is there (NEO 3.1), but not
// longer than `patience`: a host that fails must not hold up the residents. Who comes later goes on
// with the next step. In other steps FillBinder. Keeps no state.
class WaitBinder final : public Binder {
 public:
  explicit WaitBinder(Nanos patience = std::chrono::seconds(1)) : patience_(patience) {}
  void bind(const BindView& view, BindDecision& decision) override;

 private:
  FillBinder fill_;
  const Nanos patience_;
};

}  // namespace tandem
