// A binder whose rule is known later: the executor needs a binder when it is made, and a policy
// that plans by step times can be made only after the executor has measured them. Until then
// visitors fill the room that there is.
//
// Threads: as any Binder; use() while no step is in flight.
#pragma once

#include <memory>
#include <utility>

#include "plan/decisions.h"
#include "scheduler/fill_binder.h"

namespace tandem {

class LateBinder final : public Binder {
 public:
  void use(std::unique_ptr<Binder> binder) { binder_ = std::move(binder); }
  void bind(const BindView& view, BindDecision& decision) override {
    binder_->bind(view, decision);
  }

 private:
  std::unique_ptr<Binder> binder_ = std::make_unique<FillBinder>();
};

}  // namespace tandem
