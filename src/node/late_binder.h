// A binder whose rule is known later: the executor needs a binder when it is made, and a policy
// that plans by step times can be made only after the executor has measured them. Until then
// visitors fill the room that there is. Tells a recorder, if there is one, of each decision.
//
// Threads: as any Binder; use() and record_to() while no step is in flight.
#pragma once

#include <memory>
#include <utility>

#include "engine/recorder.h"
#include "plan/decisions.h"
#include "scheduler/fill_binder.h"

namespace tandem {

class LateBinder final : public Binder {
 public:
  void use(std::unique_ptr<Binder> binder) { binder_ = std::move(binder); }
  // `recorder` must outlive the steps that follow.
  void record_to(Recorder& recorder) { recorder_ = &recorder; }
  void bind(const BindView& view, BindDecision& decision) override {
    binder_->bind(view, decision);
    if (recorder_ != nullptr) {
      recorder_->bind(view, decision);
    }
  }

 private:
  std::unique_ptr<Binder> binder_ = std::make_unique<FillBinder>();
  Recorder* recorder_ = nullptr;
};

}  // namespace tandem
