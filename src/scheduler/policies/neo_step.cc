#include "scheduler/policies/neo_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/log.h"
#include "latency/questions.h"
#include "scheduler/chunk_replay.h"

namespace tandem {
namespace {

constexpr int64_t kReturnPercent = 95;  // of the accelerator's blocks: sequences return below
constexpr int32_t kWithoutBound = std::numeric_limits<int32_t>::max();

bool may_move(const SequenceView& sequence) {
  return sequence.state == SequenceState::kParkedWaiting ||
         sequence.state == SequenceState::kSwapped;
}

}  // namespace

NeoStep::NeoStep(const NeoRules& rules, const Times& times, const SystemView& view,
                 Nanos step_limit, NeoMemory& memory)
    : rules_(rules),
      model_(times.model),
      host_times_(times.host),
      view_(view),
      step_limit_(step_limit),
      memory_(memory),
      draft_(view),
      chunk_limit_(step_limit) {
  std::erase_if(memory_.host_bound, [&](SequenceId id) {
    return std::ranges::find(view.running, id, &SequenceView::id) == view.running.end() &&
           std::ranges::find(view.waiting, id, &SequenceView::id) == view.waiting.end();
  });
  if (rules.join == HostJoin::kByApexPlus) {
    waits_.emplace(view, model_.step_times(), memory.host_waits);
  }
}

StepPlan NeoStep::plan() {
  if (rules_.repaired) {
    memory_.outputs.follow(view_);
  }
  find_under_way();
  if (has_host()) {
    tell_small_host();
    count_host_blocks();
    send_finished_prompts();
    make_room_for_head();
  }
  add_decodes(kLs);
  bring_back(kLs);
  add_running_prompts(kLs);
  admit_latency_sensitive();
  add_decodes(kBe);
  bring_back(kBe);
  find_host_decodes();
  reserve_for_host();
  add_running_prompts(kBe);
  collect_prompts();
  if (rules_.join != HostJoin::kByNeo) {
    return plan_apex();
  }
  const Choice resident = resident_choice();
  if (candidates_.empty() && under_way_[0].visitors + under_way_[1].visitors == 0) {
    return finish(resident);
  }
  return finish(best_of(best_lanes(resident), resident));
}

// ---------------------------------------------------------------- who is where

bool NeoStep::any_offloaded_is(SequenceState state) const {
  return std::ranges::find(view_.offloaded, state, &SequenceView::state) != view_.offloaded.end();
}

bool NeoStep::is_host_bound(const SequenceView& sequence) const {
  return std::ranges::find(memory_.host_bound, sequence.id) != memory_.host_bound.end();
}

void NeoStep::mark_host_bound(const SequenceView& sequence) {
  if (!is_host_bound(sequence)) {
    memory_.host_bound.push_back(sequence.id);
  }
}

bool NeoStep::stays_within_host(int64_t blocks) const {
  return host_used_ + blocks <= host_limit_ && blocks <= view_.budget.host_free_blocks;
}

void NeoStep::tell_small_host() {
  if (host_is_small() && !rules_.all_on_host && rules_.join == HostJoin::kByNeo &&
      !std::exchange(memory_.told_small_host, true)) {
    log::warn(
        "the host's {} KV blocks are not more than the accelerator's {}, where NEO as published "
        "would begin no request; here all of the host's blocks count",
        view_.budget.host_total_blocks, view_.budget.total_blocks);
  }
}

void NeoStep::count_host_blocks() {
  const bool all_count = host_is_small() || rules_.all_on_host || rules_.join != HostJoin::kByNeo;
  host_limit_ = view_.budget.host_total_blocks - (all_count ? 0 : view_.budget.total_blocks);
  const ClassedPlanner& planner = draft_.planner();
  for (const SequenceView& sequence : view_.offloaded) {
    if (sequence.state != SequenceState::kOnloading) {
      host_used_ += planner.blocks_for(sequence.known_tokens + 1);
    }
  }
  for (const SequenceView& sequence : view_.running) {
    if (is_host_bound(sequence)) {
      host_used_ += planner.blocks_for(sequence.known_tokens + 1);
    }
  }
}

void NeoStep::send_finished_prompts() {
  for (size_t i = 0; i < view_.running.size(); ++i) {
    const SequenceView& sequence = view_.running[i];
    const bool bound = is_host_bound(sequence);
    if (bound && !sequence.decodes()) {
      leaving_ += sequence.held_blocks;
    } else if ((bound || rules_.all_on_host) && sequence.decodes() &&
               !draft_.planner().offload(i, ClassedPlanner::Need::kWish)) {
      std::erase(memory_.host_bound, sequence.id);  // the host has no room: it stays
    }
  }
}

// The last sequences of the accelerator leave for the host, so that the prompt at the head of the
// queue, which is bound for the host, can be computed in their blocks. A latency-sensitive one
// stays on the accelerator and makes room when it is admitted.
void NeoStep::make_room_for_head() {
  if (view_.waiting.empty() || view_.waiting.front().service_class == kLs ||
      host_is_the_limit(view_.waiting.front())) {
    return;
  }
  const SequenceView& head = view_.waiting.front();
  // Without blocks on the host now, a sequence that left for this prompt would return at once.
  const bool host_has_room =
      draft_.planner().blocks_for(head.known_tokens + 1) <= draft_.builder().host_blocks_left();
  if (will_go_straight(head) && host_has_room) {
    return;
  }
  const int32_t tokens = std::min(head.pending_tokens(), view_.budget.tokens);
  ClassedPlanner& planner = draft_.planner();
  const int64_t blocks = planner.blocks_to_begin(head);
  const int64_t missing = draft_.builder().missing_to_admit(head, tokens) - leaving_;
  if (stays_within_host(blocks + std::max<int64_t>(missing, 0))) {
    if (missing > 0) {
      mark_host_bound(head);
      planner.offload_best_effort(missing, ClassedPlanner::Need::kWish);
      sends_away_ = true;
    }
    int32_t places = rules_.repaired ? 0 : head.choices - draft_.builder().sequences_left();
    for (size_t i = view_.running.size(); places > 0 && leaving_ == 0 && i-- > 0;) {
      if (view_.running[i].service_class == kBe &&
          planner.offload(i, ClassedPlanner::Need::kWish)) {
        places -= view_.running[i].choices;
        mark_host_bound(head);
        sends_away_ = true;
      }
    }
  }
  if (is_host_bound(head)) {
    kept_for_head_ = {.places = head.choices, .blocks = blocks};
  }
}

// An overdue sequence between two tokens.
std::optional<HostDecode> NeoStep::overdue_on_host() const {
  const auto found = std::ranges::find_if(view_.offloaded, [&](const SequenceView& sequence) {
    return sequence.state == SequenceState::kParkedWaiting &&
           memory_.patience.decode_is_overdue(sequence.id, view_.step);
  });
  return found == view_.offloaded.end()
             ? std::nullopt
             : std::optional(HostDecode{.context = found->known_tokens, .overdue = true});
}

// Whether this prompt can go straight to the host in a step beside all decodes and the
// reserve for tokens of the host. If the prompt found that too late, no room would have been made
// for it, and a sequence that was sent away for it would have returned.
bool NeoStep::will_go_straight(const SequenceView& head) const {
  if (!draft_.builder().may_go_straight_to_host(head)) {
    return false;
  }
  latency::StepShape decodes;
  for (const SequenceView& sequence : view_.running) {
    if (sequence.decodes()) {
      decodes.add_decode(sequence.known_tokens);
    }
  }
  const std::optional<HostDecode> overdue = overdue_on_host();
  const HostReserve reserve = reserve_beside(decodes, overdue.has_value() ? &*overdue : nullptr);
  const int32_t rows = view_.budget.tokens - decodes.decode_rows - reserve.rows;
  const Nanos limit = step_limit_ == Nanos::max() ? step_limit_ : step_limit_ - reserve.time;
  return head.known_tokens <= rows &&
         (!rules_.caps_steps ||
          latency::largest_chunk(model_.step_times(), decodes,
                                 {.prompt = head.rest(), .max_tokens = head.known_tokens},
                                 limit) == head.known_tokens);
}

void NeoStep::add_decodes(ServiceClass service_class) {
  for (size_t i = 0; i < view_.running.size(); ++i) {
    if (draft_.planner().may_decode(i, service_class)) {
      draft_.add_decode(i);
    }
  }
}

// From the front of the queue, up to the first best-effort sequence without room: how many.
int32_t NeoStep::returns_in_order(int64_t kept) const {
  int64_t left = draft_.builder().blocks_left();
  const int32_t places = draft_.builder().sequences_left() - kept_for_head_.places;
  int32_t count = 0;
  for (const SequenceView& sequence : view_.offloaded) {
    if (!may_move(sequence) || sequence.service_class != kBe) {
      continue;
    }
    left -= std::max<int64_t>(sequence.transfer_blocks,
                              draft_.planner().blocks_for(sequence.known_tokens));
    if (left < kept || count >= places) {
      break;
    }
    ++count;
  }
  return count;
}

void NeoStep::bring_back(ServiceClass service_class) {
  ClassedPlanner& planner = draft_.planner();
  if (rules_.all_on_host || planner.refused() || draft_.builder().preempts()) {
    return;
  }
  if (service_class == kLs && waits_.has_value() && memory_.form != StepForm::kTwoLanes) {
    waits_->bring_back(planner);
  } else if (service_class == kLs) {
    planner.bring_back(kLs, 0, kWithoutBound);
  } else if (!sends_away_ && !any_offloaded_is(SequenceState::kOffloading)) {
    const int64_t kept = view_.budget.total_blocks * (100 - kReturnPercent) / 100 +
                         kept_for_head_.blocks + planner.reserved_blocks();
    planner.bring_back(kBe, kept, returns_in_order(kept));
  }
}

// ---------------------------------------------------------------- prompts

// Of the prompt that comes next, with so many rows left; 0: it does not begin in this step.
int32_t NeoStep::tokens_of(const SequenceView& prompt, int32_t rows) const {
  const int32_t pending = prompt.pending_tokens();
  const bool is_first = !has_prompts();
  if (rules_.caps_steps) {
    return latency::largest_chunk(model_.step_times(), shape_with(prompts_.size()),
                                  {.prompt = prompt.rest(),
                                   .max_tokens = std::min(pending, rows),
                                   .least_tokens = is_first ? kTileTokens : 0},
                                  chunk_limit_);
  }
  const bool fits_no_step = pending > view_.budget.tokens;
  return pending <= rows ? pending : fits_no_step && is_first ? rows : 0;
}

void NeoStep::add_running_prompts(ServiceClass service_class) {
  for (size_t i = 0; i < view_.running.size(); ++i) {
    const SequenceView& sequence = view_.running[i];
    if (!draft_.planner().may_prefill(i, service_class)) {
      continue;
    }
    count_first_token(sequence);
    const int32_t rows = std::max(draft_.builder().tokens_left() - rows_for_host_, 0);
    const int32_t tokens =
        rules_.caps_steps ? tokens_of(sequence, rows) : std::min(sequence.pending_tokens(), rows);
    if (draft_.add_chunk(i, tokens)) {
      count_begun(sequence, tokens);
    }
  }
}

void NeoStep::count_begun(const SequenceView& prompt, int32_t tokens) {
  begun_credit_ += static_cast<double>(tokens) / prompt.known_tokens;
  first_token_chunk_ += prompt.service_class == kLs ? tokens : 0;
}

void NeoStep::count_first_token(const SequenceView& prompt) {
  if (prompt.service_class == kLs) {
    first_token_pending_ += prompt.pending_tokens();
    first_tokens_.push_back({.due = prompt.first_token_due, .pending = first_token_pending_});
  }
}

// They stay on the accelerator, at the cost of best effort.
void NeoStep::admit_latency_sensitive() {
  bool begins = true;
  for (const SequenceView& waiting : view_.waiting) {
    const int32_t rows = draft_.builder().tokens_left();
    begins = begins && waiting.service_class == kLs && rows > 0;
    const int32_t tokens = begins ? tokens_of(waiting, rows) : 0;
    begins = tokens >= 1 && draft_.admit(waiting, tokens);
    first_token_waits_ |= tokens >= 1 && !begins && lacks_blocks(waiting, tokens);
    count_first_token(waiting);
    if (begins) {
      count_begun(waiting, tokens);
    }
  }
}

// Prompts that go straight to the host need no room, but lengthen the wait of a prompt for blocks.
void NeoStep::collect_prompts() {
  const bool may_begin = !draft_.builder().preempts() && !first_token_waits_ &&
                         (stages_prompts() || !draft_.planner().refused());
  for (const SequenceView& waiting : view_.waiting) {
    if (!may_begin || (waiting.service_class == kBe && !collect(waiting))) {
      return;
    }
  }
}

bool NeoStep::finds_room(const SequenceView& waiting, int32_t tokens) const {
  const PlanBuilder& builder = draft_.builder();
  const int32_t logits = tokens == waiting.pending_tokens() ? waiting.choices : 0;
  return prompt_choices_ + waiting.choices <= builder.sequences_left() &&
         prompt_logits_ + logits <= builder.logit_rows_left() && finds_blocks(waiting, tokens);
}

// Without a place for it, an earlier prompt may have been refused for the same reason.
bool NeoStep::finds_blocks(const SequenceView& waiting, int32_t tokens) const {
  const PlanBuilder& builder = draft_.builder();
  const bool has_place = prompt_choices_ + waiting.choices <= builder.sequences_left();
  return !(has_place && draft_.planner().refused()) &&
         builder.missing_to_admit(waiting, tokens) + prompt_blocks_ <= 0;
}

// Blocks that this prompt, if it stays, and all that decode on the accelerator will still need: of
// what each is expected to grow by, half, since they end at different times.
int64_t NeoStep::blocks_for_output(const SequenceView& waiting) const {
  double tokens = memory_.outputs.rest(waiting) * waiting.choices;
  for (const SequenceView& sequence : view_.running) {
    tokens += is_host_bound(sequence) ? 0 : memory_.outputs.rest(sequence);
  }
  return static_cast<int64_t>(std::ceil(tokens / 2 / view_.budget.block_tokens));
}

// Whether the prompts before it take it along to the host. For APEX the accelerator comes first: a
// prompt that goes straight to the host takes none of its blocks; the next may find room.
bool NeoStep::follows_to_host() const {
  if (prompts_.empty() || !prompts_.back().host_bound) {
    return false;
  }
  return rules_.join == HostJoin::kByNeo || !prompts_.back().straight;
}

// A prompt that finds room stays on the accelerator, unless it follows an earlier one to the host;
// where the rules are repaired also if no room is left for output. NEO's rules send a prompt that
// cannot go straight to the host there too, if sequences are on the host and there is no room
// beside it to compute another one for the host.
bool NeoStep::goes_to_host(const SequenceView& waiting, int64_t blocks, bool has_room) const {
  if (!has_host()) {
    return false;
  }
  if (rules_.all_on_host || is_host_bound(waiting) || follows_to_host()) {
    return true;
  }
  const bool may_go_straight = draft_.builder().may_go_straight_to_host(waiting);
  if (may_go_straight && !has_room) {
    return true;
  }
  const int64_t left = draft_.builder().blocks_left() - prompt_blocks_ - blocks;
  if (rules_.repaired && !is_alone() && left < blocks_for_output(waiting)) {
    return true;
  }
  return !may_go_straight && rules_.join == HostJoin::kByNeo && !view_.offloaded.empty() &&
         left < blocks;
}

// Whether `tokens` of a prompt that is bound for the host go straight there in this step.
bool NeoStep::goes_straight(const SequenceView& waiting, int32_t tokens) const {
  const PlanBuilder& builder = draft_.builder();
  const ClassedPlanner& planner = draft_.planner();
  return builder.may_go_straight_to_host(waiting) && tokens == waiting.known_tokens &&
         prompt_logits_ < builder.logit_rows_left() &&
         std::ssize(prompts_) < builder.slices_left() &&
         straight_blocks_ + planner.blocks_for(tokens) <= builder.staging_blocks_left() &&
         straight_host_blocks_ + planner.blocks_for(tokens + 1) <= builder.host_blocks_left();
}

// Whether the host has room for a prompt that is bound for it, and keeps up with one more.
bool NeoStep::host_takes(const SequenceView& waiting, int64_t blocks) const {
  return host_used_ + blocks <= host_limit_ && !host_is_the_limit(waiting);
}

// In steps with lanes a further prompt of a step leaves the rows of the tokens of the host that
// hide behind the step as it is: two prompts in one step are no sooner done than in two, and take
// the rows of hundreds of tokens for which the host has time. Published rules leave none.
int32_t NeoStep::rows_for_lanes() const {
  if (!takes_prompts_beside_lanes() || decodes_.empty()) {
    return 0;
  }
  Lanes lanes;
  lanes[0].residents = shape_with(prompts_.size());
  for (const HostDecode& decode : decodes_) {
    ++lanes[1].visitors;
    lanes[1].context += decode.context;
  }
  const LayerTimes times = model_.times(lanes);
  const Nanos layer = times[0].dense + times[0].attention + times[1].dense;
  const Nanos host = std::max(times[1].host, Nanos{1});
  return static_cast<int32_t>(
      std::min(lanes[1].visitors * layer.count() / host.count(), lanes[1].visitors));
}

// False: it does not begin, and neither does any behind it.
bool NeoStep::collect(const SequenceView& waiting) {
  const int32_t rows =
      draft_.builder().tokens_left() - prompt_rows_ - std::max(rows_for_host_, rows_for_lanes());
  const int32_t tokens = rows > 0 ? tokens_of(waiting, rows) : 0;
  if (tokens < 1) {
    return false;
  }
  const bool has_room = finds_room(waiting, tokens);
  if (!has_room && !is_as_published() && finds_blocks(waiting, tokens)) {
    return false;  // it waits for a place: the host is there for want of blocks
  }
  const int64_t blocks = draft_.planner().blocks_to_begin(waiting);
  bool host_bound = goes_to_host(waiting, blocks, has_room);
  const bool straight = host_bound && goes_straight(waiting, tokens);
  const bool waits_to_go_straight =
      host_bound && !straight && takes_prompts_beside_lanes() && will_go_straight(waiting);
  if ((!straight && !has_room) || waits_to_go_straight) {
    return false;
  }
  if (straight_blocks_ > 0 && std::ssize(prompts_) >= draft_.builder().slices_left()) {
    return false;  // slices that go straight to the host are bound last: it would find none
  }
  if (!is_as_published()) {
    // The accelerator has room for it: better there than not at all.
    host_bound = host_bound && host_takes(waiting, blocks);
    if (!host_bound) {
      std::erase(memory_.host_bound, waiting.id);
    }
  } else if ((host_bound || (has_host() && !host_is_small())) &&
             host_used_ + blocks > host_limit_) {
    if (!is_alone() || !prompts_.empty()) {
      return false;
    }
    tell_large_prompt(blocks);
    host_bound = false;
  }
  if (!host_bound && !has_room) {
    return false;
  }
  add_prompt({.sequence = &waiting,
              .tokens = tokens,
              .host_bound = host_bound,
              .straight = host_bound && straight},
             blocks);
  return true;
}

void NeoStep::tell_large_prompt(int64_t blocks) {
  if (!std::exchange(memory_.told_large_prompt, true)) {
    log::warn(
        "a prompt of {} KV blocks begins beside no other, because the host has {} blocks and the "
        "accelerator {}; NEO as published would never begin it; give the host more memory",
        blocks, view_.budget.host_total_blocks, view_.budget.total_blocks);
  }
}

void NeoStep::add_prompt(const Prompt& prompt, int64_t blocks) {
  const SequenceView& sequence = *prompt.sequence;
  prompts_.push_back(prompt);
  host_used_ += prompt.host_bound ? blocks : 0;
  prompt_rows_ += prompt.tokens;
  prompt_logits_ += prompt.tokens == sequence.pending_tokens() ? sequence.choices : 0;
  if (prompt.straight) {
    straight_blocks_ += draft_.planner().blocks_for(sequence.known_tokens);
    straight_host_blocks_ += blocks;
  } else {
    prompt_choices_ += sequence.choices;
    prompt_blocks_ += blocks;
  }
}

latency::StepShape NeoStep::shape_with(size_t prompts) const {
  latency::StepShape shape = draft_.shape();
  for (const Prompt& prompt : std::span(prompts_).first(prompts)) {
    const SequenceView& sequence = *prompt.sequence;
    shape.add_prefill(sequence.computed_tokens, prompt.tokens,
                      prompt.tokens == sequence.pending_tokens() ? sequence.choices : 0);
  }
  return shape;
}

}  // namespace tandem
