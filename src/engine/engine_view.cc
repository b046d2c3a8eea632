// The part of Engine that shows policies what there is.
#include <algorithm>
#include <utility>

#include "engine/engine.h"
#include "engine/prefetch.h"

namespace tandem {
namespace {

// The policy sees this many waiting sequences at most; more could not be admitted in one step
// anyway.
constexpr size_t kWaitingShown = 64;

// Not while its prefix is on its way from the host: it would be computed beside that.
bool may_be_shown(const LiveSequence* sequence) {
  return sequence->fetched != LiveSequence::Fetched::kUnderWay;
}

}  // namespace

void Engine::show(const LiveSequence& sequence, SequenceView& view) const {
  const Tier tier = sequence.kv.tier();
  view.id = sequence.id;
  view.request = sequence.request;
  view.state = sequence.state.state();
  view.service_class = sequence.service_class;
  view.level = sequence.level;
  view.arrived = sequence.arrived;
  view.first_token_due = sequence.output_tokens() == 0 ? sequence.first_token_due : Nanos::max();
  view.tpot = sequence.tpot_target;
  view.first_token = sequence.first_token;
  view.next_token_due = sequence.next_token_due();
  view.known_tokens = sequence.known_tokens();
  view.computed_tokens = sequence.computed_tokens;
  view.held_blocks = sequence.kv.blocks();
  view.own_blocks = kv_.own_blocks(sequence.kv);
  // On the host nobody shares a block that will be written.
  view.copy_blocks =
      tier == Tier::kAccelerator && kv_.needs_copy(sequence.kv, sequence.computed_tokens) ? 1 : 0;
  view.cached_free_blocks = 0;
  view.choices = sequence.choices;
  view.tier = tier;
  view.transfer_blocks = sequence.kv.blocks();
  view.promised = sequence.promised;
  view.host_failures = sequence.host_failures;
}

void Engine::show_waiting(const LiveSequence& sequence, SequenceView& view) const {
  show(sequence, view);
  const PrefixMatch match = kv_.match(sequence.cacheable(), sequence.known_tokens());
  view.computed_tokens = match.tokens;
  view.cached_free_blocks = match.free_blocks;
}

// Shows the head of the queue, up to the first sequence that cannot find its blocks: policies do
// not look past it. Where classes go before each other the first of best effort is shown behind
// whatever stands before it, so that a policy can see how long it waits.
void Engine::view_waiting() {
  waiting_views_.clear();
  view_head_of_queue();
  if (policy_.queue_order() != QueueOrder::kClassFirst) {
    return;
  }
  const auto best_effort = std::ranges::partition_point(waiting_, [](const LiveSequence* sequence) {
    return sequence->service_class == ServiceClass::kLatencySensitive;
  });
  const auto first = std::find_if(best_effort, waiting_.end(), may_be_shown);
  if (first != waiting_.end() && (waiting_views_.empty() || waiting_views_.back().service_class ==
                                                                ServiceClass::kLatencySensitive)) {
    show_waiting(**first, waiting_views_.emplace_back());
  }
}

void Engine::view_head_of_queue() {
  int64_t free = kv_.free_blocks();
  for (const LiveSequence* sequence : waiting_) {
    const bool crowded =
        static_cast<int32_t>(running_.size() + waiting_views_.size()) >= config_.max_running;
    // For what was promised a place is made, and for the first, if it has targets.
    const bool makes_place = sequence->promised || waiting_views_.empty();
    if (waiting_views_.size() == kWaitingShown || free < 0 || (crowded && !makes_place)) {
      return;
    }
    if (!may_be_shown(sequence)) {
      continue;
    }
    SequenceView& shown = waiting_views_.emplace_back();
    show_waiting(*sequence, shown);
    free -= kv_.blocks_for(shown.known_tokens) - shown.computed_tokens / kv_.block_tokens() +
            shown.cached_free_blocks;
  }
}

SystemView Engine::make_view(Nanos now) {
  running_views_.clear();
  int32_t places = config_.max_running;
  for (const LiveSequence* sequence : running_) {
    show(*sequence, running_views_.emplace_back());
    places -= sequence->choices;
  }
  view_waiting();
  SystemView view;
  view.now = now;
  view.step = next_step_;
  view.running = running_views_;
  view.waiting = waiting_views_;
  later_views_.clear();
  if (admission_ != nullptr) {
    view_later();
  }
  view.later = later_views_;
  view.budget = {.tokens = executor_.limits().max_batched_tokens,
                 .logit_rows = executor_.limits().max_logit_rows,
                 .sequences = std::max(places, 0),
                 .free_blocks = kv_.free_blocks(),
                 .total_blocks = kv_.total_blocks(),
                 .host_free_blocks = kv_.free_blocks(Tier::kHost),
                 .host_total_blocks = kv_.total_blocks(Tier::kHost),
                 .block_tokens = kv_.block_tokens()};
  if (const int64_t ready = executor_.tier_counts().ready; ready >= 0) {
    view.ready = ready - std::exchange(ready_before_, ready);
  }
  view_offloaded(view);
  return view;
}

}  // namespace tandem
