#include "scheduler/policies/omniserve.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/check.h"
#include "latency/questions.h"
#include "scheduler/chunk_replay.h"
#include "scheduler/classed_planner.h"
#include "scheduler/pace.h"

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
// The limit that LS sequences gave holds for best effort so long after the last of them: who comes
// next should not wait long for a step to end.
constexpr Nanos kRememberLimit = std::chrono::seconds(10);

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
        step_tokens_(view.budget.tokens) {
    const auto parked = static_cast<int32_t>(view.offloaded.size());
    visitor_tokens_ = std::min(parked, view.budget.tokens / kVisitorShareOfTokens);
    visitor_logits_ = std::min(parked, std::max(1, view.budget.logit_rows / kVisitorShareOfLogits));
    ready_ = view.ready >= 0 ? view.ready
                             : std::ranges::count(view.offloaded, SequenceState::kParkedInFlight,
                                                  &SequenceView::state);
    const auto head = std::ranges::find(view.waiting, kBe, &SequenceView::service_class);
    head_ = head == view.waiting.end() ? nullptr : &*head;
    for (const SequenceView& one : view.running) {
      if (one.service_class == kBe) {
        forced_.prompts += one.decodes() ? 0 : 1;
        forced_.decodes += one.decodes() ? 1 : 0;
        forced_.context += one.decodes() ? one.known_tokens : 0;
      }
    }
    forced_.prompts += head_ == nullptr ? 0 : 1;
    forced_.offloaded = parked;
  }

  StepPlan plan() {
    decode_latency_sensitive();
    limit_ = limit();
    planner_.bring_back(kLs, 0, std::numeric_limits<int32_t>::max());
    prefill_latency_sensitive();
    admit_latency_sensitive();
    note_later();
    first_token_limit_ = first_token_limit();
    best_effort_limit_ = best_effort_limit();
    make_room_for_best_effort();
    keep_blocks_for_decodes();
    prefill_best_effort();
    admit_best_effort();
    decode_best_effort();
    bring_back_best_effort();
    remember();
    planner_.write_through_best_effort(planner_.share_of_blocks(options_.offload_below));
    return planner_.finish();
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
    if (pace_ < kNoLimit) {
      memory_.limit = pace_;
      memory_.limited = view_.now;
    }
    return asked.step;
  }

  // Until when the step must end so that every waiting LS prompt still gets its first token in
  // time: those that end in this step, and the others with what the model says they take after it.
  [[nodiscard]] Nanos first_token_limit() const {
    Nanos end = kNoLimit;
    if (forced_.decodes + forced_.prompts + forced_.offloaded == 0) {
      return end;  // nobody would be held back
    }
    for (const Nanos due : due_in_step_) {
      end = due == kNoLimit ? end : std::min(end, due - view_.now);
    }
    const auto last_due = std::ranges::find_if(due_ahead_.rbegin(), due_ahead_.rend(),
                                               [](Nanos due) { return due < kNoLimit; });
    const auto looked_at = static_cast<size_t>(due_ahead_.rend() - last_due);
    if (looked_at == 0) {
      return end;
    }
    ReplayRules rules{.decodes = decodes_, .limit = pace_, .step_tokens = most_step_tokens()};
    rules.before = forced_time(model_, decodes_, forced_);
    rules.apart = rules.before / options_.patience_steps;
    const std::vector<Nanos> rest =
        replay_prompts(model_, rules, std::span(ahead_).first(looked_at));
    for (size_t i = 0; i < looked_at; ++i) {
      if (due_ahead_[i] < kNoLimit) {
        end = std::min(end, rest[i] == kNoLimit ? Nanos{0} : due_ahead_[i] - view_.now - rest[i]);
      }
    }
    return end;
  }

  [[nodiscard]] Nanos best_effort_limit() const {
    Nanos limit = limit_;
    if (limit == kNoLimit && limited()) {
      limit = memory_.limit;
    }
    if (limit < kNoLimit) {
      limit -= latency::visitor_reserve(model_, shape_, ready_);
    }
    return std::min(limit, first_token_limit_);
  }

  // ---- tokens
  [[nodiscard]] int32_t most_step_tokens() const {
    return limit_ == kNoLimit ? std::min(options_.token_budget, step_tokens_) : step_tokens_;
  }
  [[nodiscard]] int32_t prompt_room() const {
    const int32_t left = planner_.builder().tokens_left();
    return std::min(most_step_tokens() - (step_tokens_ - left), left - visitor_tokens_);
  }
  [[nodiscard]] int32_t chunk_of(const SequenceView& prompt, Nanos limit, LeastChunk least) const {
    return chunk_within(
        model_, shape_,
        {prompt.computed_tokens, prompt.pending_tokens(), prompt.choices, prompt_room()}, limit,
        least);
  }
  void count_chunk(const SequenceView& prompt, int32_t tokens) {
    const bool ends = tokens == prompt.pending_tokens();
    shape_.add_prefill(prompt.computed_tokens, tokens, ends ? prompt.choices : 0);
  }
  bool add_chunk(size_t index, int32_t tokens) {
    if (tokens < 1) {
      return false;
    }
    planner_.add(index, tokens);
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
      }
    }
  }

  // `tokens` of this LS prompt are in the step: what is left of it lies ahead.
  void note_first_token(const SequenceView& prompt, int32_t tokens) {
    const Nanos due = planned_due(prompt.arrived, prompt.first_token_due);
    if (tokens == prompt.pending_tokens()) {
      due_in_step_.push_back(due);
      for (int32_t choice = 0; choice < prompt.choices; ++choice) {
        decodes_.add_decode(prompt.known_tokens + 1);
      }
      return;
    }
    ahead_.push_back(
        {prompt.computed_tokens + tokens, prompt.pending_tokens() - tokens, prompt.choices});
    due_ahead_.push_back(due);
  }
  void note_later() {
    for (const AdmittedPrompt& prompt : view_.later) {
      ahead_.push_back({prompt.computed_tokens, prompt.pending_tokens, prompt.choices});
      due_ahead_.push_back(planned_due(prompt.arrived, prompt.first_token_due));
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
      const LeastChunk least = shape_.prefill_rows == 0 ? LeastChunk::kTile : LeastChunk::kNothing;
      const int32_t tokens = ahead_.empty() ? chunk_of(prompt, limit_, least) : 0;
      note_first_token(prompt, add_chunk(i, tokens) ? tokens : 0);
    }
  }

  // Blocks and the place of the first best-effort request in the queue, once it has waited long
  // enough.
  [[nodiscard]] bool leaves_room_for_head(const SequenceView& waiting) const {
    if (head_ == nullptr || waiting.promised || !overdue(*head_)) {
      return true;
    }
    return planner_.builder().blocks_left() - planner_.blocks_to_begin(waiting) >=
               planner_.blocks_to_begin(*head_) &&
           planner_.builder().sequences_left() - waiting.choices >= head_->choices;
  }

  void admit_latency_sensitive() {
    bool goes_on = ahead_.empty();
    for (const SequenceView& waiting : view_.waiting) {
      if (waiting.service_class != kLs) {
        break;
      }
      int32_t tokens = 0;
      if (goes_on && leaves_room_for_head(waiting)) {
        const LeastChunk least =
            shape_.prefill_rows == 0 ? LeastChunk::kTile : LeastChunk::kNothing;
        tokens = chunk_of(waiting, limit_, least);
        if (tokens > 0 && !planner_.admit(waiting, tokens)) {
          planner_.note_refused();
          tokens = 0;
        }
      }
      goes_on = tokens == waiting.pending_tokens();  // no skipping ahead
      if (tokens > 0) {
        count_chunk(waiting, tokens);
      }
      note_first_token(waiting, tokens);
    }
  }

  // ---- best effort
  [[nodiscard]] bool overdue(const SequenceView& sequence) const {
    const auto since = memory_.passed_over.find(sequence.id);
    return since != memory_.passed_over.end() &&
           view_.step - since->second >= options_.patience_steps;
  }
  [[nodiscard]] int64_t passed_over_steps(const SequenceView& sequence) const {
    const auto since = memory_.passed_over.find(sequence.id);
    return since == memory_.passed_over.end() ? 0 : view_.step - since->second;
  }
  // Where nothing else runs somebody must.
  [[nodiscard]] bool unconditional(const SequenceView& sequence) const {
    return overdue(sequence) || shape_.rows() == 0;
  }

  // LS requests have targets now or had them a moment ago.
  [[nodiscard]] bool limited() const {
    return memory_.limit < kNoLimit && view_.now - memory_.limited <= kRememberLimit;
  }
  [[nodiscard]] int32_t kept_places() const {
    int32_t places = view_.budget.sequences;
    for (const SequenceView& sequence : view_.running) {
      places += sequence.choices;
    }
    return limited() ? places / kPlacesForLs : 0;
  }
  [[nodiscard]] int64_t kept_beside_best_effort() const {
    return planner_.share_of_blocks(std::min(options_.offload_below, kAdmissionMargin)) +
           planner_.reserved_blocks();
  }

  void make_room_for_best_effort() {
    int64_t wanted = planner_.share_of_blocks(options_.offload_below) + planner_.reserved_blocks();
    if (head_ != nullptr && !planner_.refused() && head_->choices <= view_.budget.sequences) {
      wanted = std::max(wanted, planner_.blocks_to_begin(*head_) + kept_beside_best_effort());
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
      const LeastChunk least =
          !began_best_effort_ && unconditional(prompt) ? LeastChunk::kTile : LeastChunk::kNothing;
      const int32_t tokens = chunk_of(prompt, best_effort_limit_, least);
      const bool has_blocks = planner_.builder().blocks_left() - decode_blocks_ >=
                              planner_.blocks_to_grow(i, std::max(tokens, 1));
      if (tokens > 0 && (has_blocks || decode_blocks_ == 0) && add_chunk(i, tokens)) {
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
      const bool first = &waiting == head_ && unconditional(waiting);
      if (unfinished_best_effort_ && !first) {
        return;
      }
      const bool crowded =
          !view_.running.empty() &&
          (planner_.builder().sequences_left() - waiting.choices < (first ? 0 : kept_places()) ||
           planner_.builder().blocks_left() - planner_.blocks_to_begin(waiting) - decode_blocks_ <
               (first ? 0 : kept_beside_best_effort()));
      const int32_t tokens =
          chunk_of(waiting, best_effort_limit_, first ? LeastChunk::kTile : LeastChunk::kNothing);
      if (tokens < 1) {
        return;
      }
      if (crowded || !planner_.admit(waiting, tokens)) {
        planner_.note_refused();
        return;
      }
      count_chunk(waiting, tokens);
      admitted_head_ = true;
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
      const bool in_time = best_effort_limit_ == kNoLimit ||
                           time_with_decode(sequence.known_tokens) <= best_effort_limit_;
      const bool has_logits = planner_.builder().logit_rows_left() > visitor_logits_;
      if ((in_time && has_logits) || unconditional(sequence)) {
        add_decode(i);
      } else if (passed_over_steps(sequence) >= kOffloadAfterSteps) {
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
    if (!roomy) {
      memory_.roomy_since = -1;
      return;
    }
    if (memory_.roomy_since < 0) {
      memory_.roomy_since = view_.step;
    }
    if (view_.step - memory_.roomy_since < kOnloadAfterSteps || planner_.refused() ||
        planner_.builder().preempts() || options_.onload_above >= 100) {
      return;
    }
    planner_.bring_back(
        kBe, planner_.share_of_blocks(options_.onload_above) + planner_.reserved_blocks(), 1);
  }

  // Who was passed over in this step, and since when.
  void remember() {
    std::unordered_map<SequenceId, int64_t> passed_over;
    const auto note = [&](const SequenceView& sequence) {
      const auto since = memory_.passed_over.find(sequence.id);
      passed_over.emplace(sequence.id,
                          since == memory_.passed_over.end() ? view_.step : since->second);
    };
    for (size_t i = 0; i < view_.running.size(); ++i) {
      if (view_.running[i].service_class == kBe && !planner_.planned(i)) {
        note(view_.running[i]);
      }
    }
    memory_.head = {};
    if (head_ != nullptr && !admitted_head_) {
      note(*head_);
      if (overdue(*head_)) {
        memory_.head = {.blocks = planner_.blocks_to_begin(*head_), .places = head_->choices};
      }
    }
    memory_.passed_over = std::move(passed_over);
  }

  const SystemView& view_;
  const OmniServeOptions& options_;
  const latency::StepTimeModel& model_;
  OmniServePolicy::Memory& memory_;
  ClassedPlanner planner_;
  const SequenceView* head_ = nullptr;  // the first best-effort one in the queue
  latency::StepShape shape_;            // of the plan so far
  latency::StepShape decodes_;          // of LS in the next step
  ForcedWork forced_;
  Nanos limit_ = kNoLimit;  // of this step
  Nanos pace_ = kNoLimit;   // of steps where nobody is late
  Nanos first_token_limit_ = kNoLimit;
  Nanos best_effort_limit_ = kNoLimit;
  std::vector<Nanos> due_in_step_;  // of LS prompts that end in this step
  std::vector<PromptAhead> ahead_;  // what is left of LS prompts after it
  std::vector<Nanos> due_ahead_;
  int64_t ready_ = 0;  // results that wait for a stage
  int64_t decode_blocks_ = 0;
  int32_t step_tokens_;
  int32_t visitor_tokens_ = 0;
  int32_t visitor_logits_ = 0;
  bool began_best_effort_ = false;
  bool unfinished_best_effort_ = false;
  bool admitted_head_ = false;
  bool short_of_time_ = false;
};

}  // namespace

OmniServePolicy::OmniServePolicy(const OmniServeOptions& options,
                                 const latency::StepTimeModel& step_times)
    : options_(options), step_times_(step_times) {
  CHECK(options.token_budget > 0 && options.offload_below >= 0 &&
            options.offload_below <= options.onload_above && options.onload_above <= 100 &&
            options.patience_steps > 0,
        "a token budget of {}, offload below {} %, onload above {} %, a patience of {} steps",
        options.token_budget, options.offload_below, options.onload_above, options.patience_steps);
}

std::unique_ptr<Binder> OmniServePolicy::make_binder() {
  return std::make_unique<SlackBinder>(forecast_, step_times_, options_.patience_steps);
}

std::unique_ptr<Admission> OmniServePolicy::make_admission() {
  return std::make_unique<SloAdmission>(AdmissionRules{.token_budget = options_.token_budget,
                                                       .patience_steps = options_.patience_steps},
                                        step_times_, forecast_, memory_.head);
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
