#include "scheduler/policies/llumnix.h"

#include <algorithm>

#include "base/check.h"
#include "scheduler/classed_planner.h"

namespace tandem {
namespace {

constexpr ServiceClass kLs = ServiceClass::kLatencySensitive;
constexpr ServiceClass kBe = ServiceClass::kBestEffort;

// The same without a host: whoever must make room is recomputed.
SystemView one_tier(SystemView view) {
  view.budget.host_free_blocks = 0;
  return view;
}

// One planning.
class Planning {
 public:
  Planning(const SystemView& view, const LlumnixOptions& options)
      : view_(one_tier(view)), options_(options), planner_(view_) {}

  StepPlan plan() {
    for (const ServiceClass service_class : {kLs, kBe}) {
      decode(service_class);
      prefill(service_class);
      admit(service_class);
    }
    return planner_.finish();
  }

 private:
  [[nodiscard]] int32_t prompt_room() const {
    const int32_t left = planner_.builder().tokens_left();
    return std::min(options_.token_budget - (view_.budget.tokens - left), left);
  }

  void decode(ServiceClass service_class) {
    for (size_t i = 0; i < view_.running.size(); ++i) {
      if (planner_.may_decode(i, service_class)) {
        planner_.add(i, 1);
      }
    }
  }

  void prefill(ServiceClass service_class) {
    for (size_t i = 0; i < view_.running.size(); ++i) {
      const int32_t tokens = std::min(view_.running[i].pending_tokens(), prompt_room());
      if (tokens > 0 && planner_.may_prefill(i, service_class)) {
        planner_.add(i, tokens);
      }
    }
  }

  // Into the headroom no best-effort one is let, but where it would be alone: it might never fit
  // otherwise.
  [[nodiscard]] bool keeps_headroom(const SequenceView& waiting) const {
    return view_.running.empty() ||
           planner_.builder().blocks_left() - planner_.blocks_to_begin(waiting) >=
               planner_.share_of_blocks(options_.headroom_percent);
  }

  void admit(ServiceClass service_class) {
    for (const SequenceView& waiting : view_.waiting) {
      if (waiting.service_class != service_class) {
        continue;
      }
      if ((service_class == kBe && !keeps_headroom(waiting)) ||
          !planner_.admit(waiting, std::min(waiting.pending_tokens(), prompt_room()))) {
        planner_.note_refused();
        return;  // no skipping ahead
      }
    }
  }

  const SystemView view_;
  const LlumnixOptions& options_;
  ClassedPlanner planner_;
};

}  // namespace

LlumnixPolicy::LlumnixPolicy(const LlumnixOptions& options) : options_(options) {
  CHECK(
      options.token_budget > 0 && options.headroom_percent >= 0 && options.headroom_percent <= 100,
      "a token budget of {}, a headroom of {} %", options.token_budget, options.headroom_percent);
}

StepPlan LlumnixPolicy::plan(const SystemView& view) { return Planning(view, options_).plan(); }

}  // namespace tandem
