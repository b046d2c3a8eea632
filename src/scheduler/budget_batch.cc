#include "scheduler/budget_batch.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "scheduler/classed_planner.h"
#include "scheduler/margins.h"
#include "scheduler/ordering.h"

namespace tandem {
namespace {

// Whoever waits does not go to the host: without its blocks somebody must be recomputed.
SystemView one_tier(SystemView view) {
  view.budget.host_free_blocks = 0;
  return view;
}

// One planning.
class Planning {
 public:
  Planning(const SystemView& view, const BudgetRules& rules)
      : view_(rules.overflow == BudgetRules::Overflow::kWaits ? one_tier(view) : view),
        rules_(rules),
        planner_(view_) {
    visitor_tokens_ = visitor_rows(view_).tokens;
    for (size_t i = 0; i < view_.running.size(); ++i) {
      set_aside_ += planner_.may_decode(i, kBe) ? 1 : 0;
    }
  }

  StepPlan plan() {
    decode(kLs);
    planner_.bring_back(kLs, 0, std::numeric_limits<int32_t>::max());
    compute_prompts(kLs);
    make_room_for_best_effort();
    set_aside_ = 0;
    decode(kBe);
    compute_prompts(kBe);
    return planner_.finish();
  }

 private:
  [[nodiscard]] int32_t prompt_room() const {
    const int32_t left = planner_.builder().tokens_left();
    return std::min(rules_.token_budget - (view_.budget.tokens - left), left - visitor_tokens_) -
           set_aside_;
  }
  [[nodiscard]] int64_t headroom() const {
    return planner_.share_of_blocks(rules_.headroom_percent);
  }

  void decode(ServiceClass service_class) {
    for (size_t i = 0; i < view_.running.size(); ++i) {
      if (planner_.may_decode(i, service_class)) {
        planner_.add(i, 1);
      }
    }
  }

  void compute_prompts(ServiceClass service_class) {
    bool goes_on = true;  // of those that wait: no skipping ahead, which would starve the long ones
    for (const PromptPlace& prompt : all_prompts(view_, planner_, service_class)) {
      const int32_t tokens = std::min(prompt.sequence->pending_tokens(), prompt_room());
      if (tokens < 1) {
        return;
      }
      if (!prompt.waits) {
        planner_.add(prompt.index, tokens);
      } else if (goes_on && !admit(*prompt.sequence, tokens)) {
        planner_.note_refused();
        goes_on = false;
      }
    }
  }

  bool admit(const SequenceView& waiting, int32_t tokens) {
    const bool keeps_headroom =
        waiting.service_class == kLs || view_.running.empty() ||
        planner_.builder().blocks_left() - planner_.blocks_to_begin(waiting) >= headroom();
    return keeps_headroom && planner_.admit(waiting, tokens);
  }

  // The overflow goes to the host: what has grown into the headroom, and as much as the next
  // best-effort prompt lacks outside it.
  void make_room_for_best_effort() {
    if (rules_.overflow != BudgetRules::Overflow::kGoesToHost) {
      return;
    }
    int64_t wanted = headroom() + planner_.reserved_blocks();
    const SequenceView* next = first_waiting(view_, kBe);
    if (next != nullptr && !planner_.refused() && next->choices <= view_.budget.sequences) {
      wanted += planner_.blocks_to_begin(*next);
    }
    planner_.offload_best_effort(wanted - planner_.builder().blocks_left(),
                                 ClassedPlanner::Need::kWish);
  }

  const SystemView view_;
  const BudgetRules& rules_;
  ClassedPlanner planner_;
  int32_t visitor_tokens_ = 0;
  int32_t set_aside_ = 0;  // tokens of best-effort decodes that are not in the plan yet
};

}  // namespace

StepPlan plan_budget_batch(const SystemView& view, const BudgetRules& rules) {
  CHECK(rules.token_budget > 0 && rules.headroom_percent >= 0 && rules.headroom_percent <= 100,
        "a token budget of {}, a headroom of {} %", rules.token_budget, rules.headroom_percent);
  return Planning(view, rules).plan();
}

}  // namespace tandem
