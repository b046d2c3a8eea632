#include "engine/view_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/admitted_prompt.h"
#include "engine/prefetch.h"

namespace tandem {
namespace {

// A policy sees at most this many waiting sequences; more could not be admitted in one step anyway.
constexpr size_t kMaxWaitingShown = 64;

// A policy sees at most this many accepted latency-sensitive sequences beside those that might
// begin; sequences further back do not count when best effort gets its part of a step.
constexpr size_t kMaxLaterShown = 256;

// A sequence whose prefix is being fetched from the host is not shown: it would be computed beside
// the copy.
bool may_be_shown(const LiveSequence* sequence) {
  return sequence->fetched != LiveSequence::Fetched::kUnderWay;
}

bool moves(SequenceState state) {
  return state == SequenceState::kOffloading || state == SequenceState::kOnloading;
}

}  // namespace

SystemView ViewBuilder::make() {
  running_.clear();
  int32_t places = options_.max_running;
  for (const LiveSequence* sequence : table_.running()) {
    show(*sequence, running_.emplace_back());
    places -= sequence->choices;
  }
  show_queue();
  SystemView view;
  view.now = step_.now;
  view.step = step_.number;
  view.running = running_;
  view.waiting = waiting_;
  view.queue = this;
  later_.clear();
  if (options_.shows_later) {
    show_later();
  }
  view.later = later_;
  view.budget = {.tokens = executor_.limits().max_batched_tokens,
                 .logit_rows = executor_.limits().max_logit_rows,
                 .sequences = std::max(places, 0),
                 .free_blocks = kv_.free_blocks(),
                 .total_blocks = kv_.total_blocks(),
                 .host_free_blocks = kv_.free_blocks(Tier::kHost),
                 .host_total_blocks = kv_.total_blocks(Tier::kHost),
                 .staging_blocks = executor_.limits().staging_blocks,
                 .block_tokens = kv_.block_tokens()};
  view.ready = step_.ready;
  show_offloaded(view);
  return view;
}

void ViewBuilder::show(const LiveSequence& sequence, SequenceView& view) const {
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
  // On the host no block that will be written is shared.
  view.copy_blocks =
      tier == Tier::kAccelerator && kv_.needs_copy(sequence.kv, sequence.computed_tokens) ? 1 : 0;
  view.cached_free_blocks = 0;
  view.choices = sequence.choices;
  view.tier = tier;
  view.transfer_blocks = sequence.kv.blocks();
  view.promised = sequence.promised;
  view.host_failures = sequence.host_failures;
  view.lane = tier == Tier::kHost ? sequence.lane : 0;
}

void ViewBuilder::show_waiting(const LiveSequence& sequence, SequenceView& view) const {
  show(sequence, view);
  const PrefixMatch match = kv_.match(sequence.cacheable(), sequence.known_tokens());
  view.computed_tokens = match.tokens;
  view.cached_free_blocks = match.free_blocks;
}

// Shows the head of the queue, up to the first sequence that cannot find its blocks; policies that
// look past it read the queue itself (QueueView). With classes in order, the first best-effort
// sequence is shown behind whatever stands before it, so that a policy sees how long it has waited.
void ViewBuilder::show_queue() {
  waiting_.clear();
  show_head_of_queue();
  const WaitingQueue& queue = table_.waiting();
  if (!queue.order().classes_first() ||
      (!waiting_.empty() && waiting_.back().service_class == ServiceClass::kBestEffort)) {
    return;
  }
  for (LiveSequence* first = queue.head(ServiceClass::kBestEffort); first != nullptr;) {
    if (may_be_shown(first)) {
      show_waiting(*first, waiting_.emplace_back());
      return;
    }
    const std::span<QueueEntry* const> rest = queue.order().next(first);
    first = rest.empty() ? nullptr : static_cast<LiveSequence*>(rest.front());
  }
}

QueuePrefix ViewBuilder::prefix_of(const QueueEntry& entry) const {
  return WaitingQueue::prefix_of(static_cast<const LiveSequence&>(entry));
}

std::optional<SequenceView> ViewBuilder::show(const QueueEntry& entry) const {
  const auto& sequence = static_cast<const LiveSequence&>(entry);
  if (!may_be_shown(&sequence)) {
    return std::nullopt;
  }
  SequenceView view;
  show_waiting(sequence, view);
  return view;
}

// Where prompts may go straight to the host, its blocks count too, and places do not.
void ViewBuilder::show_head_of_queue() {
  const bool stages = executor_.limits().staging_blocks > 0;
  int64_t free = kv_.free_blocks() + (stages ? kv_.free_blocks(Tier::kHost) : 0);
  for (const LiveSequence* sequence : table_.waiting()) {
    const bool crowded = !stages && static_cast<int32_t>(table_.running().size() +
                                                         waiting_.size()) >= options_.max_running;
    // A place can be made for a promised sequence, and for the first, if it has targets.
    const bool makes_place = sequence->promised || waiting_.empty();
    if (waiting_.size() == kMaxWaitingShown || free < 0 || (crowded && !makes_place)) {
      return;
    }
    if (!may_be_shown(sequence)) {
      continue;
    }
    SequenceView& shown = waiting_.emplace_back();
    show_waiting(*sequence, shown);
    free -= kv_.blocks_for(shown.known_tokens) - shown.computed_tokens / kv_.block_tokens() +
            shown.cached_free_blocks;
  }
}

// Latency-sensitive sequences that are not shown because they could not begin now. All stand before
// best effort: an admission needs an order with classes first (AdmissionBook).
void ViewBuilder::show_later() {
  auto shown = waiting_.begin();
  for (const LiveSequence* sequence : table_.waiting()) {
    if (sequence->service_class != ServiceClass::kLatencySensitive ||
        later_.size() == kMaxLaterShown) {
      return;
    }
    if (shown != waiting_.end() && shown->id == sequence->id) {
      ++shown;
    } else {
      later_.push_back(admitted_prompt(*sequence));
    }
  }
}

// Of hundreds of offloaded sequences a dozen get a token in a step, so the views of the others are
// kept: a sequence that stays on the host changes only with its state, but for the lane of a token
// under way.
void ViewBuilder::show_offloaded(SystemView& view) {
  for (const LiveSequence* sequence : table_.offloaded()) {
    __builtin_prefetch(sequence);
  }
  size_t places = 0;
  for (LiveSequence* sequence : table_.offloaded()) {
    const SequenceState state = sequence->state.state();
    if (state == SequenceState::kFinishing || state == SequenceState::kDropped) {
      continue;
    }
    if (places == offloaded_.size()) {
      offloaded_.emplace_back();
    }
    SequenceView& shown = offloaded_[places++];
    if (sequence->state.take_changed() || shown.id != sequence->id || moves(state)) {
      show(*sequence, shown);
    }
    const bool is_under_way = state == SequenceState::kParkedInFlight;
    if (is_under_way) {
      shown.lane = sequence->lane;
    }
    if (options_.shows_stages) {
      shown.stage = is_under_way ? executor_.next_stage(shown.id) : -1;
    }
    view.budget.sequences -= state == SequenceState::kOnloading ? 1 : 0;
    if (state == SequenceState::kParkedWaiting || state == SequenceState::kOffloading) {
      view.budget.host_free_blocks -= kv_.blocks_for(shown.known_tokens) - shown.held_blocks;
    }
  }
  offloaded_.resize(places);
  view.budget.sequences = std::max(view.budget.sequences, 0);
  view.budget.host_free_blocks = std::max<int64_t>(view.budget.host_free_blocks, 0);
  if (trust_.suspended(view.now)) {
    view.budget.host_free_blocks = 0;
  }
  view.offloaded = offloaded_;
}

Status ViewBuilder::audit() const {
  for (const LiveSequence* sequence : table_.offloaded()) {
    const auto shown = std::ranges::find(offloaded_, sequence->id, &SequenceView::id);
    if (shown == offloaded_.end() || sequence->state.changed() || moves(sequence->state.state())) {
      continue;
    }
    SequenceView anew;
    show(*sequence, anew);
    anew.own_blocks = shown->own_blocks;
    anew.stage = shown->stage;  // tokens have moved on since
    if (anew.state == SequenceState::kParkedInFlight) {
      anew.lane = shown->lane;  // the last plan may have changed it
    }
    if (anew != *shown) {
      return Error{ErrorCode::kInternal,
                   fmt::format("the view of sequence {} in state {} is out of date",
                               raw(sequence->id), state_name(sequence->state.state())),
                   ""};
    }
  }
  return {};
}

}  // namespace tandem
