// A step of policies that know two classes but no time: one token budget that prompts share in
// chunks beside the decodes, latency-sensitive (LS) before best-effort (BE). Shared by `sarathi`,
// `llumnix` and `llumnix_cpu`, which differ in the rules below. In this order:
//
//   LS decodes, LS prompts, BE decodes, BE prompts
//
// of prompts those of a lower level first, then those that have begun, then first come, first
// served. Tokens of BE decodes are set aside before LS prompts take theirs, so a prompt makes no
// decode wait; blocks are not: where they are short LS takes them from BE, newest first.
//
// Plain function; borrows the view for the call.
#pragma once

#include <cstdint>

#include "plan/decisions.h"
#include "plan/views.h"

namespace tandem {

struct BudgetRules {
  int32_t token_budget = 512;  // > 0; tokens of a step, decodes included, which alone may exceed it
  // Percent of the blocks, 0 .. 100, into which no BE request is let, but where it would be alone:
  // it might never fit otherwise.
  int32_t headroom_percent = 0;
  // BE for which there are no blocks outside the headroom.
  enum class Overflow : uint8_t {
    kWaits,       // in the queue; what runs is recomputed where LS needs its blocks
    kGoesToHost,  // the newest BE decodes move there, and stay until they end
  } overflow = Overflow::kWaits;
};

StepPlan plan_budget_batch(const SystemView& view, const BudgetRules& rules);

}  // namespace tandem
