// Steps with lanes in which the accelerator waits for tokens of the host (decision 073).
#include <algorithm>
#include <utility>

#include "scheduler/policies/neo_step.h"

namespace tandem {
namespace {

// The accelerator may wait for this part of a layer for tokens that do not hide. The limit
// keeps the accelerator busy, and predictions within the model's errors.
constexpr int64_t kPercentForWaiting = 3;

}  // namespace

// Whether the accelerator may wait for further tokens of the host. It does not while a prompt's
// first token has a target.
bool NeoStep::may_wait_for_host(const Choice& lanes) const {
  const Placement& placement = lanes.placement;
  return rules_.repaired && !placement.lanes[0].residents.empty() && placement.placed > 0 &&
         placement.placed < std::ssize(decodes_) && !any_first_token_due();
}

// Output tokens per time that a step must give for a token that it waits for. A longer
// step delays all others, so its time is also worth the tokens that the mean step gives in it.
double NeoStep::worth_of_waiting(const Choice& lanes, const Choice& resident) const {
  const double worth = std::max(lanes.rate(), worth_of_time(resident));
  if (resident_decodes().empty()) {
    return worth;
  }
  const HostRows on_host = host_rows();
  Lanes all;
  all[0].residents = resident_decodes();
  all[1].visitors = on_host.rows;
  all[1].context = on_host.context;
  const Nanos mean = memory_.prompts_per_layer;
  const bool may_overlap =
      rules_.join == HostJoin::kByApexPlus && rules_.only_form != StepForm::kTwoLanes;
  return std::max({worth, rate_of_full_lanes(all, mean), may_overlap ? rate_by_overlap(mean) : 0});
}

// Tokens that hide leave the host idle while the rows of a lane are on the link, while the engine
// launches a stage, and during the last stage. Further tokens use some of that time.
NeoStep::Choice NeoStep::with_waiting(Choice lanes, const Choice& resident,
                                      const LanesUnderWay& under_way) const {
  Lanes start = under_way.lanes;
  start[0].residents = lanes.placement.lanes[0].residents;
  const PlacementLimits limits = placement_limits(start);
  const Nanos layer = model_.layer_time(model_.times(lanes.placement.lanes));
  const WaitingPrice price{
      .tokens_per_nano = model_.step_times().layers() * worth_of_waiting(lanes, resident),
      .layer_time = std::min(limits.layer_time, layer + layer * kPercentForWaiting / 100)};
  lanes.placement = place_while_worth_waiting(model_, std::move(lanes.placement), decodes_,
                                              limits.decodes, price);
  return priced_lanes(std::move(lanes), under_way);
}

// `lanes` with further tokens, or unchanged if the step would not be taken with these: because it
// is longer than steps with lanes may be, or because lanes do not gain and serve an overdue token
// alone.
NeoStep::Choice NeoStep::better_with_waiting(Choice lanes, const LanesUnderWay& under_way) const {
  const Choice resident = resident_choice();
  Choice waiting = with_waiting(lanes, resident, under_way);
  const bool is_taken = waiting.time <= longest_lanes(resident) &&
                        (rules_.join == HostJoin::kByApexPlus || lanes_gain(waiting, resident));
  return is_taken ? waiting : lanes;
}

}  // namespace tandem
