// The two other rules of "join now, later, or wait" (the first is FillBinder's: whoever is ready).
// Each asks FillBinder how many there is room for.
#pragma once

#include <chrono>
#include <vector>

#include "plan/decisions.h"
#include "scheduler/fill_binder.h"

namespace tandem {

// Offloaded tokens at the same stage continue together, as a cohort: a stage takes its visitors
// when BindView::coming counts no other visitor for it. Otherwise it is looked at again in the next
// step (APEX 3.3). Keeps no state.
class CohortBinder final : public Binder {
 public:
  void bind(const BindView& view, BindDecision& decision) override;

 private:
  FillBinder fill_;
  std::vector<int32_t> whole_;  // reused
};

// In steps with lanes a stage waits until all visitors on the way to it are there (NEO 3.1), but
// not longer than `patience`: a host that hangs must not hold up the residents. After a stage has
// waited in vain no stage waits for `kTrustsAgainAfter` times as long, so a host that hangs costs
// the residents at most a tenth of the time, at however many stages its visitors are. Visitors that
// come later join the next step. In other steps FillBinder.
class WaitBinder final : public Binder {
 public:
  explicit WaitBinder(Nanos patience = std::chrono::seconds(1)) : patience_(patience) {}
  void bind(const BindView& view, BindDecision& decision) override;

 private:
  static constexpr int64_t kTrustsAgainAfter = 10;

  FillBinder fill_;
  const Nanos patience_;
  Nanos trusts_again_{0};
};

// For steps of both kinds: WaitBinder with lanes, CohortBinder without.
class LanesOrCohortBinder final : public Binder {
 public:
  void bind(const BindView& view, BindDecision& decision) override;

 private:
  WaitBinder lanes_;
  CohortBinder cohorts_;
};

}  // namespace tandem
