#include "scheduler/policies/omniserve.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "latency/questions.h"
#include "scheduler/best_effort_claims.h"
#include "scheduler/chunk_replay.h"
#include "scheduler/classed_planner.h"
#include "scheduler/first_tokens.h"
#include "scheduler/pace.h"
#include "scheduler/policies/piggyback.h"
#include "scheduler/room_ahead.h"

namespace tandem {
namespace {

constexpr ServiceClass kLs = ServiceClass::kLatencySensitive;
constexpr ServiceClass kBe = ServiceClass::kBestEffort;
constexpr Nanos kNoLimit = Nanos::max();

// As in piggyback: a part of a step's rows is kept for visitors where there are any, and new
// best-effort prompts leave so many percent of the blocks free where anything else runs.
constexpr int32_t kVisitorShareOfLogits = 8;
constexpr int32_t kAdmissionMargin = 10;
// Where LS requests come, one place in so many is not for best effort: they would have to wait for
// somebody's end, or somebody would have to be computed anew for them.
constexpr int32_t kPlacesForLs = 16;

// A best-effort decode for which there was no time in so many steps in a row goes to the host. Not
// at once: the chunks of a single prompt fill a few steps to their limit.
constexpr int64_t kOffloadAfterSteps = 4;
// One comes back when for so many steps a decode more would have left this share of the time.
constexpr int64_t kOnloadAfterSteps = 16;
constexpr int64_t kOnloadMarginPercent = 20;

// One planning.
class Planning {
 public:
  Planning(const SystemView& view, const OmniServeOptions& options,
           const latency::StepTimeModel& model, OmniServePolicy::Memory& memory)
      : view_(view),
        options_(options),
        model_(model),
        memory_(memory),
        planner_(view),
        host_waits_(view, model, memory.host_waits),
        claims_(best_effort_claims(view, planner_, memory.patience)),
        line_(view),
        kept_rows_(claims_.rows()),
        step_tokens_(view.budget.tokens) {
    const auto parked = static_cast<int32_t>(view.offloaded.size());
    visitor_tokens_ = std::min(parked, view.budget.tokens / kVisitorShareOfTokens);
    visitor_logits_ = std::min(parked, std::max(1, view.budget.logit_rows / kVisitorShareOfLogits));
    ready_ = view.ready >= 0 ? view.ready
                             : std::ranges::count(view.offloaded, SequenceState::kParkedInFlight,
                                                  &SequenceView::state);
  }

  StepPlan plan() {
    decode_latency_sensitive();
    overdue_time_ = claims_.overdue_decode_time(model_, shape_);
    limit_ = limit();
    at_risk_ = first_tokens_are_at_risk();
    host_waits_.bring_back(planner_);
    prefill_latency_sensitive();
    admit_latency_sensitive();
    std::ranges::for_each(view_.later, [&](const auto& prompt) { first_tokens_.note(prompt); });
    make_room_ahead();
    first_token_limit_ = first_token_limit();
    best_effort_limit_ = best_effort_limit();
    unclaimed_limit_ = before_overdue_decodes(best_effort_limit_);
    kept_rows_ = claims_.overdue_decodes;  // the tile is used from here on
    make_room_for_best_effort();
    keep_blocks_for_decodes();
    prefill_best_effort();
    admit_best_effort();
    decode_best_effort();
    bring_back_best_effort();
    remember();
    planner_.write_through_best_effort(planner_.share_of_blocks(options_.offload_below));
    return host_waits_.finish(planner_.finish(), shape_, ready_);
  }

  [[nodiscard]] const latency::StepShape& shape() const { return shape_; }
  // Visitors too leave waiting prompts their time.
  [[nodiscard]] Nanos step_limit() const {
    return view_.offloaded.empty() ? limit_ : std::min(limit_, first_token_limit_);
  }

 private:
  // ---- time
  [[nodiscard]] Nanos time_with_decode(int64_t context) const {
    latency::StepShape tried = shape_;
    tried.add_decode(context);
    return model_.step_time(tried);
  }

  [[nodiscard]] Nanos limit() {
    const StepPace asked = step_pace(view_, model_, shape_);
    pace_ = asked.pace;
    if (pace_ < kNoLimit && asked.is_kept) {
      memory_.limit = pace_;
      memory_.limited = view_.now;
    }
    return asked.step;
  }

  // Of the steps that come.
  [[nodiscard]] ReplayRules replay_rules() const {
    const ForcedShare forced =
        forced_share(model_, decodes_, claims_.work, options_.patience_steps);
    return {.decodes = decodes_,
            .limit = pace_,
            .step_tokens = std::min(most_step_tokens(), step_tokens_ - visitor_tokens_),
            .before = forced.at_once + lost_,
            .apart = forced.apart,
            .forced_rows = forced.rows,
            .later_rows = forced.later_rows,
            .later = forced.later,
            .patience_steps = options_.patience_steps};
  }

  // Until when the step must end so that every waiting LS prompt still gets its first token in
  // time: those that end in this step, and the others with what the model says they take after it.
  [[nodiscard]] Nanos first_token_limit() const {
    const ForcedWork& work = claims_.work;
    if (work.decodes + work.prompts + work.offloaded == 0) {
      return kNoLimit;  // nothing would be held back
    }
    return first_tokens_.limit(
        model_, first_tokens_.any_due_ahead() ? replay_rules() : ReplayRules{}, view_.now);
  }

  [[nodiscard]] Nanos best_effort_limit() const {
    Nanos limit = limit_;
    if (limit == kNoLimit && memory_.is_limited(view_.now)) {
      limit = memory_.limit;
    }
    if (limit < kNoLimit) {
      limit -= latency::visitor_reserve(model_, shape_, ready_);
    }
    return std::min(limit, first_token_limit_);
  }

  // ---- tokens
  [[nodiscard]] int32_t most_step_tokens() const {
    return limit_ == kNoLimit && !at_risk_ ? std::min(options_.token_budget, step_tokens_)
                                           : step_tokens_;
  }
  // First tokens are promised by the pace of the targets that limit steps. A first token would come
  // late in the steps of the budget, once such a target is gone, or where a sequence that is late
  // makes steps shorter.
  [[nodiscard]] bool first_tokens_are_at_risk() const {
    const bool is_slow = limit_ == kNoLimit ? options_.token_budget < step_tokens_ : limit_ < pace_;
    if (!is_slow) {
      return false;
    }
    const FirstTokens all = first_tokens_of(view_);
    if (!all.any_due_ahead() || (pace_ < kNoLimit && all.in_time_tile_by_tile(pace_, view_.now))) {
      return false;
    }
    const Nanos end = all.limit(model_, replay_rules(), view_.now);
    return end <= (limit_ == kNoLimit ? Nanos{0} : limit_);
  }
  // Beside what visitors and overdue best effort need.
  [[nodiscard]] int32_t prompt_room() const {
    const int32_t left = planner_.builder().tokens_left();
    return std::min(most_step_tokens() - (step_tokens_ - left), left - visitor_tokens_) -
           kept_rows_;
  }
  // `least` tokens go in even where neither the time nor the budget has room for them.
  [[nodiscard]] int32_t chunk_of(const SequenceView& prompt, Nanos limit, int32_t least) const {
    const int32_t left = planner_.builder().tokens_left() - claims_.overdue_decodes -
                         (kept_rows_ > claims_.overdue_decodes ? 1 : 0);
    return chunk_within(model_, shape_,
                        {.computed_tokens = prompt.computed_tokens,
                         .pending_tokens = prompt.pending_tokens(),
                         .choices = prompt.choices,
                         .most_tokens = std::max(prompt_room(), std::min(least, left)),
                         .least_tokens = least},
                        limit);
  }
  // The first latency-sensitive prompt of a step gets a tile whatever the time. Those behind it do
  // not make it late: steps may have become longer than when it was promised its first token.
  [[nodiscard]] int32_t latency_sensitive_chunk(const SequenceView& prompt) const {
    const Nanos due = first_tokens_.first_due_in_step(view_.now);
    const Nanos limit = std::min(at_risk_ ? pace_ : limit_,
                                 due == kNoLimit ? due : before_overdue_decodes(due - view_.now));
    return chunk_of(prompt, limit, shape_.prefill_rows == 0 ? kTileTokens : 0);
  }
  [[nodiscard]] Nanos before_overdue_decodes(Nanos limit) const {
    return limit == kNoLimit ? limit : limit - overdue_time_;
  }
  void count_chunk(const SequenceView& prompt, int32_t tokens) {
    shape_.add_prefill(prompt.computed_tokens, tokens,
                       tokens == prompt.pending_tokens() ? prompt.choices : 0);
  }
  bool add_chunk(size_t index, int32_t tokens) {
    if (tokens > 0) {
      planner_.add(index, tokens);
    }
    if (!planner_.planned(index)) {
      return false;
    }
    count_chunk(view_.running[index], tokens);
    return true;
  }
  bool add_decode(size_t index) {
    planner_.add(index, 1);
    if (!planner_.planned(index)) {
      return false;
    }
    shape_.add_decode(view_.running[index].known_tokens);
    return true;
  }

  // ---- latency sensitive
  void decode_latency_sensitive() {
    for (size_t i = 0; i < view_.running.size(); ++i) {
      if (planner_.may_decode(i, kLs) && add_decode(i)) {
        decodes_.add_decode(view_.running[i].known_tokens + 1);
        line_.count_decode(view_.running[i]);
      }
    }
  }

  // `tokens` of this LS prompt are in the step.
  void note_first_token(const SequenceView& prompt, int32_t tokens) {
    first_tokens_.note(prompt, tokens);
    for (int32_t i = 0; tokens == prompt.pending_tokens() && i < prompt.choices; ++i) {
      decodes_.add_decode(prompt.known_tokens + 1);
    }
  }

  void prefill_latency_sensitive() {
    std::vector<size_t> prompts;
    for (size_t i = 0; i < view_.running.size(); ++i) {
      if (planner_.may_prefill(i, kLs)) {
        prompts.push_back(i);
      }
    }
    std::ranges::stable_sort(prompts, {}, [&](size_t i) { return view_.running[i].level; });
    for (const size_t i : prompts) {
      const SequenceView& prompt = view_.running[i];
      const int32_t chunk = first_tokens_.any_ahead() ? 0 : latency_sensitive_chunk(prompt);
      const int32_t tokens = add_chunk(i, chunk) ? chunk : 0;
      note_first_token(prompt, tokens);
      line_.count_prompt(prompt, tokens);
    }
  }

  void admit_latency_sensitive() {
    bool goes_on = !first_tokens_.any_ahead();
    size_t promised = line_.promised();
    for (size_t i = 0; i < view_.waiting.size(); ++i) {
      SequenceView waiting = view_.waiting[i];
      if (waiting.service_class != kLs) {
        break;
      }
      waiting.promised = promised > 0;
      promised -= promised > 0 ? 1 : 0;
      int32_t tokens = 0;
      if (goes_on && claims_.others_are_left_room(planner_, waiting)) {
        tokens = latency_sensitive_chunk(waiting);
        if (tokens > 0 && !planner_.admit(waiting, tokens)) {
          planner_.note_refused();
          tokens = 0;
        }
      }
      goes_on = tokens == waiting.pending_tokens();  // no skipping ahead
      if (tokens > 0) {
        count_chunk(waiting, tokens);
        line_.count_begun(waiting, tokens);
      }
      note_first_token(waiting, tokens);
    }
  }

  // Where the promised line does not find all of it, it loses a step.
  void make_room_ahead() {
    const int32_t most = std::min(most_step_tokens(), step_tokens_ - visitor_tokens_);
    RoomAhead room = line_.needed(planner_, claims_, most);
    if (pace_ < kNoLimit && !planner_.has_room_ahead(room)) {
      const ChunkAsk ask{
          .pending_tokens = most, .choices = 0, .most_tokens = most, .least_tokens = kTileTokens};
      room = line_.needed(planner_, claims_, chunk_within(model_, decodes_, ask, pace_));
    }
    planner_.make_room_ahead(room);
    if (!planner_.has_room_ahead(room)) {
      lost_ = pace_ < kNoLimit ? pace_ : model_.step_time(decodes_);
    }
    line_.keep(planner_, room);
  }

  // ---- best effort
  // What a best-effort prompt gets whatever the time. Where nothing else runs something must.
  [[nodiscard]] int32_t least_chunk(const SequenceView& prompt) const {
    if (shape_.rows() == 0) {
      return kTileTokens;
    }
    return claims_.prompt_is_overdue && !began_best_effort_
               ? overdue_chunk(model_, prompt.computed_tokens)
               : 0;
  }

  [[nodiscard]] int32_t kept_places() const {
    return memory_.is_limited(view_.now) ? places_of(view_) / kPlacesForLs : 0;
  }
  [[nodiscard]] int64_t kept_beside_best_effort() const {
    return planner_.share_of_blocks(std::min(options_.offload_below, kAdmissionMargin)) +
           planner_.reserved_blocks();
  }

  void make_room_for_best_effort() {
    int64_t wanted = planner_.share_of_blocks(options_.offload_below) + planner_.reserved_blocks();
    if (claims_.head != nullptr && !planner_.refused() &&
        claims_.head->choices <= view_.budget.sequences) {
      wanted =
          std::max(wanted, planner_.blocks_to_begin(*claims_.head) + kept_beside_best_effort());
    }
    planner_.offload_best_effort(wanted - planner_.builder().blocks_left(),
                                 ClassedPlanner::Need::kWish);
  }

  // Best-effort decodes come after the prompts, but their next blocks are theirs: prompts that took
  // them would send older ones away.
  void keep_blocks_for_decodes() {
    for (size_t i = 0; i < view_.running.size(); ++i) {
      if (planner_.may_decode(i, kBe)) {
        decode_blocks_ += planner_.blocks_to_grow(i, 1);
      }
    }
  }

  void prefill_best_effort() {
    for (size_t i = 0; i < view_.running.size(); ++i) {
      if (!planner_.may_prefill(i, kBe)) {
        continue;
      }
      const SequenceView& prompt = view_.running[i];
      const int32_t least = least_chunk(prompt);
      const int32_t tokens = chunk_of(prompt, unclaimed_limit_, least);
      const int64_t growth = planner_.blocks_to_grow(i, std::max(tokens, 1));
      const bool has_blocks =
          planner_.builder().blocks_left() - decode_blocks_ >= growth || decode_blocks_ == 0;
      const bool leaves_line = least > 0 || line_.is_left_by(planner_, growth);
      if (tokens > 0 && has_blocks && leaves_line && add_chunk(i, tokens)) {
        began_best_effort_ = true;
        if (tokens == prompt.pending_tokens()) {
          continue;
        }
      }
      unfinished_best_effort_ = true;
      return;  // first come, first served
    }
  }

  void admit_best_effort() {
    for (const SequenceView& waiting : view_.waiting) {
      if (waiting.service_class != kBe) {
        continue;
      }
      if (unfinished_best_effort_) {
        return;  // one begins when the one before it is done
      }
      const bool first =
          &waiting == claims_.head && (claims_.prompt_is_overdue || shape_.rows() == 0);
      const bool crowded =
          !view_.running.empty() &&
          (planner_.builder().sequences_left() - waiting.choices <
               std::max(first ? 0 : kept_places(), line_.places()) ||
           planner_.builder().blocks_left() - planner_.blocks_to_begin(waiting) - decode_blocks_ <
               std::max(first ? 0 : kept_beside_best_effort(), line_.blocks()));
      const int32_t tokens = chunk_of(waiting, unclaimed_limit_, first ? least_chunk(waiting) : 0);
      if (tokens < 1) {
        return;
      }
      if (crowded || !planner_.admit(waiting, tokens)) {
        planner_.note_refused();
        return;
      }
      count_chunk(waiting, tokens);
      began_best_effort_ = true;
      if (tokens < waiting.pending_tokens()) {
        return;
      }
    }
  }

  void decode_best_effort() {
    for (size_t i = 0; i < view_.running.size(); ++i) {
      if (!planner_.may_decode(i, kBe)) {
        continue;
      }
      const SequenceView& sequence = view_.running[i];
      const bool in_time = unclaimed_limit_ == kNoLimit ||
                           time_with_decode(sequence.known_tokens) <= unclaimed_limit_;
      const bool is_overdue = memory_.patience.decode_is_overdue(sequence.id, view_.step);
      kept_rows_ -= is_overdue ? 1 : 0;
      const bool leaves_others = planner_.builder().logit_rows_left() > visitor_logits_ &&
                                 planner_.builder().tokens_left() - kept_rows_ > visitor_logits_;
      if (is_overdue || shape_.rows() == 0 ||
          (in_time && leaves_others && line_.is_left_by_decode(planner_, i))) {
        add_decode(i);
      } else if (memory_.patience.decode_passed_over(sequence.id, view_.step) >=
                 kOffloadAfterSteps) {
        planner_.offload(i, ClassedPlanner::Need::kWish);
      }
      short_of_time_ = short_of_time_ || !in_time;
    }
  }

  // Delayed: when time has been left over for a while, one a step.
  void bring_back_best_effort() {
    const auto next = std::ranges::find(view_.offloaded, kBe, &SequenceView::service_class);
    const bool roomy = next != view_.offloaded.end() && !short_of_time_ &&
                       (best_effort_limit_ == kNoLimit ||
                        time_with_decode(next->known_tokens) <=
                            best_effort_limit_ / 100 * (100 - kOnloadMarginPercent));
    if (memory_.roomy.steps(roomy, view_.step) < kOnloadAfterSteps || planner_.refused() ||
        planner_.builder().preempts() || options_.onload_above >= 100) {
      return;
    }
    const int64_t kept =
        planner_.share_of_blocks(options_.onload_above) + planner_.reserved_blocks();
    const int32_t most = planner_.builder().sequences_left() > line_.places() ? 1 : 0;
    planner_.bring_back(kBe, std::max(kept, line_.blocks()), most);
  }

  // What was passed over in this step.
  void remember() {
    Patience& patience = memory_.patience;
    patience.begin_step(view_.step);
    for (size_t i = 0; i < view_.running.size(); ++i) {
      if (planner_.may_decode(i, kBe)) {
        patience.pass_over_decode(view_.running[i].id);
      }
    }
    if (claims_.work.prompts > 0 && !began_best_effort_) {
      patience.pass_over_prompts();
    }
    patience.end_step();
    memory_.head = began_best_effort_ ? OverdueHead{} : claims_.of_head;
  }

  const SystemView& view_;
  const OmniServeOptions& options_;
  const latency::StepTimeModel& model_;
  OmniServePolicy::Memory& memory_;
  ClassedPlanner planner_;
  HostWaits host_waits_;
  const BestEffortClaims claims_;
  LineAhead line_;
  int32_t kept_rows_;           // of the step, for what best effort claims of it
  latency::StepShape shape_;    // of the plan so far
  latency::StepShape decodes_;  // of LS in the next step
  Nanos limit_ = kNoLimit;      // of this step
  Nanos pace_ = kNoLimit;       // of steps where nobody is late
  Nanos first_token_limit_ = kNoLimit;
  Nanos best_effort_limit_ = kNoLimit;
  Nanos unclaimed_limit_ = kNoLimit;  // of best effort that is not overdue
  Nanos overdue_time_{0};             // that best-effort decodes claim of this step
  FirstTokens first_tokens_;          // of LS prompts
  int64_t ready_ = 0;                 // results that wait for a stage
  int64_t decode_blocks_ = 0;
  Nanos lost_{0};  // a step without prompts, where there was no room for them
  int32_t step_tokens_;
  int32_t visitor_tokens_ = 0;
  int32_t visitor_logits_ = 0;
  bool at_risk_ = false;  // first tokens
  bool began_best_effort_ = false;
  bool unfinished_best_effort_ = false;
  bool short_of_time_ = false;
};

constexpr std::array<const PolicyOption*, 4> kOptions = {&kPiggybackTokenBudget, &kOffloadBelow,
                                                         &kOnloadAbove, &kPatienceSteps};

Result<PolicyParts> make(const PolicyOptions& options, const Beliefs& beliefs) {
  ASSIGN_OR_RETURN(const PiggybackOptions shared, piggyback_options(options));
  auto policy =
      std::make_unique<OmniServePolicy>(OmniServeOptions{.token_budget = shared.token_budget,
                                                         .offload_below = shared.offload_below,
                                                         .onload_above = shared.onload_above,
                                                         .patience_steps = options[kPatienceSteps]},
                                        *beliefs.step_times);
  PolicyParts parts;
  parts.make_binder = [&policy = *policy] { return policy.make_binder(); };
  parts.admission = policy->make_admission();
  parts.step = std::move(policy);
  return parts;
}

}  // namespace

constinit const PolicyOption kPatienceSteps{
    .name = "patience-steps",
    .unit = "steps",
    .default_value = 64,
    .min = 1,
    .max = std::numeric_limits<int32_t>::max(),
    .help = "steps for which best effort may be passed over"};

constinit const PolicyDescriptor kOmniServe{
    .name = "omniserve",
    .summary = "as piggyback, and keeps targets by predicting step times; needs a profile",
    .traits = {.needs_step_times = true, .admits = true, .tiers = PolicyTiers::kBoth},
    .options = kOptions,
    .make = make};

OmniServePolicy::OmniServePolicy(const OmniServeOptions& options,
                                 const latency::StepTimeModel& step_times)
    : options_(options),
      step_times_(step_times),
      memory_{.patience = Patience(options.patience_steps), .head = {}} {
  CHECK(options.token_budget > 0 && options.offload_below >= 0 &&
            options.offload_below <= options.onload_above && options.onload_above <= 100,
        "a token budget of {}, offload below {} %, onload above {} %", options.token_budget,
        options.offload_below, options.onload_above);
}

StepPlan OmniServePolicy::plan(const SystemView& view) {
  Planning planning(view, options_, step_times_, memory_);
  StepPlan plan = planning.plan();
  forecast_.step = view.step;
  forecast_.shape = planning.shape();
  forecast_.limit = planning.step_limit();
  return plan;
}

}  // namespace tandem
