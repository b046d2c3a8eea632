#include "scheduler/policies/hygen.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "base/units.h"
#include "latency/questions.h"
#include "plan/fcfs_order.h"
#include "scheduler/chunk_replay.h"
#include "scheduler/fill_binder.h"
#include "scheduler/margins.h"
#include "scheduler/ordering.h"
#include "scheduler/policies/piggyback.h"
#include "scheduler/psm_order.h"
#include "scheduler/split_order.h"
#include "scheduler/step_draft.h"
#include "scheduler/vtc_order.h"

namespace tandem {

namespace {

constexpr int32_t kAllOfThem = std::numeric_limits<int32_t>::max();

// One planning.
class HyGenPlanning {
 public:
  // So many best-effort requests may begin.
  HyGenPlanning(const SystemView& view, const HyGenOptions& options,
                const latency::StepTimeModel* model, int32_t may_begin)
      : view_(view),
        options_(options),
        model_(model),
        may_begin_(may_begin),
        draft_(view),
        visitors_(visitor_rows(view)),
        ready_(ready_results(view)) {}

  // What latency-sensitive decodes and a tile of a prompt take; after plan().
  [[nodiscard]] Nanos least_time() const { return least_time_; }
  // Best-effort requests that begin; after plan().
  [[nodiscard]] int32_t begun_offline() const { return begun_offline_; }

  StepPlan plan() {
    ClassedPlanner& planner = draft_.planner();
    decode_online();
    if (options_.goals.any()) {
      latency::StepShape least = draft_.shape();
      least.add_prefill(0, kTileTokens, 1);
      least_time_ = model_->step_time(least);
    }
    planner.bring_back(kLs, 0, kAllOfThem);
    compute(kLs);
    // Blocks that are freed for a prompt which the rate keeps from beginning would go back to an
    // offloaded sequence at once, and so on in every plan.
    make_room_for_best_effort(planner, view_, options_.offload_below,
                              may_begin_ > 0 ? NextPrompt::kMayBegin : NextPrompt::kWaits);
    count_offline_blocks();
    decode_offline();
    compute(kBe);
    if (!planner.refused() && !planner.builder().preempts() && options_.onload_above < 100) {
      planner.bring_back(kBe,
                         planner.share_of_blocks(options_.onload_above) + planner.reserved_blocks(),
                         kAllOfThem);
    }
    planner.write_through_best_effort(planner.share_of_blocks(options_.offload_below));
    return planner.finish();
  }

 private:
  // Rows that prompts may still take.
  [[nodiscard]] int32_t prompt_room() const {
    const int32_t left = draft_.builder().tokens_left();
    return std::min(options_.token_budget - (view_.budget.tokens - left), left - visitors_.tokens);
  }

  // The largest chunk within the budgets (time: `limit`), at least `least` tokens.
  [[nodiscard]] int32_t chunk(const SequenceView& prompt, const latency::StepShape& shape,
                              int32_t least, Nanos limit) const {
    const int32_t most =
        std::min(prompt.pending_tokens(), std::max(prompt_room(), std::min(least, hard_room())));
    if (model_ == nullptr || most < 1) {
      return std::max(most, 0);
    }
    return latency::largest_chunk(
        *model_, shape,
        {.prompt = prompt.rest(), .max_tokens = most, .least_tokens = std::min(least, most)},
        limit);
  }
  // Rows that are there, whatever the token budget.
  [[nodiscard]] int32_t hard_room() const {
    return draft_.builder().tokens_left() - visitors_.tokens;
  }

  // The step so far with the results that will join it.
  [[nodiscard]] latency::StepShape visited_shape() const {
    latency::StepShape shape = draft_.shape();
    if (model_ != nullptr && ready_ > 0) {
      latency::add_visits(shape, int64_t{model_->layers()} + 1, ready_);
    }
    return shape;
  }

  void decode_online() {
    for (size_t i = 0; i < view_.running.size(); ++i) {
      if (draft_.planner().may_decode(i, kLs)) {
        draft_.add_decode(i);
      }
    }
  }

  // Prompts of a class in their order. Who waits and finds no place keeps those waiting that stand
  // behind him, but not those that run.
  void compute(ServiceClass service_class) {
    const bool online = service_class == kLs;
    const Nanos limit = online && options_.budget_flex_only ? Nanos::max() : options_.step_budget;
    bool admits = true;
    for (const PromptPlace& place : all_prompts(view_, draft_.planner(), service_class)) {
      const SequenceView& prompt = *place.sequence;
      if (place.waits && !admits) {
        continue;
      }
      const int32_t rows =
          online ? draft_.shape().prefill_rows : static_cast<int32_t>(draft_.shape().rows());
      const int32_t tokens = chunk(prompt, online ? draft_.shape() : visited_shape(),
                                   rows == 0 ? kTileTokens : 0, limit);
      if (tokens < 1) {
        return;
      }
      const bool begun = online ? compute_online(place, tokens) : compute_offline(place, tokens);
      admits = admits && (begun || !place.waits);
      // A prompt begins when the one before it is done, and where prefixes are shared when its
      // blocks are in the cache.
      const bool has_siblings = !online && !place.waits && options_.psm_utility > 0;
      if (begun && (tokens < prompt.pending_tokens() || has_siblings)) {
        return;
      }
    }
  }

  bool compute_online(const PromptPlace& place, int32_t tokens) {
    return place.waits ? draft_.admit(*place.sequence, tokens)
                       : draft_.add_chunk(place.index, tokens);
  }

  // Of offline requests, at the beginning of their phase.
  void count_offline_blocks() {
    // Shared blocks stand in several tables, but are no more than those in use that are not
    // online's alone.
    int64_t in_use = view_.budget.total_blocks - view_.budget.free_blocks;
    for (const SequenceView& sequence : view_.running) {
      const bool offline = sequence.service_class == kBe;
      offline_blocks_ += offline ? sequence.held_blocks : 0;
      in_use -= offline ? 0 : sequence.own_blocks;
      offline_runs_ |= offline;
    }
    offline_blocks_ = std::min(offline_blocks_, std::max<int64_t>(in_use, 0));
  }
  [[nodiscard]] bool within_cap(int64_t more) const {
    return more <= 0 ||
           offline_blocks_ + more <= draft_.planner().share_of_blocks(options_.flex_blocks);
  }

  void decode_offline() {
    for (size_t i = 0; i < view_.running.size(); ++i) {
      const SequenceView& sequence = view_.running[i];
      if (!draft_.planner().may_decode(i, kBe)) {
        continue;
      }
      if (draft_.builder().logit_rows_left() <= visitors_.logits) {
        return;
      }
      if (draft_.shape().rows() > 0 && !has_time_for_decode(sequence)) {
        return;  // those behind it came later
      }
      const int64_t growth = draft_.planner().blocks_to_grow(i, 1);
      if (draft_.add_decode(i)) {
        offline_blocks_ += growth;
      }
    }
  }
  [[nodiscard]] bool has_time_for_decode(const SequenceView& sequence) const {
    if (model_ == nullptr) {
      return true;
    }
    latency::StepShape shape = visited_shape();
    shape.add_decode(sequence.known_tokens);
    return model_->step_time(shape) <= options_.step_budget;
  }

  bool compute_offline(const PromptPlace& place, int32_t tokens) {
    if (!place.waits) {
      return prefill_offline(place.index, tokens);
    }
    return !shares_with_this_step(*place.sequence) && admit_offline(*place.sequence, tokens);
  }
  bool prefill_offline(size_t index, int32_t tokens) {
    const int64_t growth = draft_.planner().blocks_to_grow(index, tokens);
    if (!draft_.add_chunk(index, tokens)) {
      return false;
    }
    offline_blocks_ += growth;
    return true;
  }
  // The cap does not hold for a prompt if no other offline request runs. Beside online requests
  // that never pause, a prompt that needs more blocks than the cap would otherwise never begin.
  bool admit_offline(const SequenceView& prompt, int32_t tokens) {
    const bool alone = view_.running.empty() && draft_.shape().rows() == 0;
    if (begun_offline_ >= may_begin_ && !alone) {
      return false;
    }
    ClassedPlanner& planner = draft_.planner();
    const int64_t blocks = planner.blocks_to_begin(prompt);
    const bool crowded = planner.builder().blocks_left() - blocks <
                         kept_beside_best_effort(planner, options_.offload_below);
    if ((offline_runs_ && !within_cap(blocks)) || (crowded && !view_.running.empty())) {
      planner.note_refused();
      return false;
    }
    if (!draft_.admit(prompt, tokens)) {
      return false;
    }
    offline_blocks_ += blocks;
    offline_runs_ = true;
    ++begun_offline_;
    return true;
  }

  // The names of the blocks of a waiting offline prompt; to be asked in the order of the queue.
  [[nodiscard]] std::span<const BlockHash> blocks_of(const SequenceView& prompt) {
    const QueueView& queue = *view_.queue;
    do {
      if (!cursor_.empty()) {
        const QueueEntry* before = cursor_.front();
        cursor_ = cursor_.subspan(1);
        cursor_ = cursor_.empty() ? queue.next(before) : cursor_;
      } else {
        head_ = queue.head(kBe);
        cursor_ = std::span(&head_, head_ == nullptr ? 0 : 1);
      }
    } while (!cursor_.empty() && cursor_.front()->id != prompt.id);
    return cursor_.empty() ? std::span<const BlockHash>()
                           : queue.prefix_of(*cursor_.front()).blocks;
  }
  // More than what is cached of it is computed by prompts that begin in this step.
  [[nodiscard]] bool shares_with_this_step(const SequenceView& prompt) {
    if (options_.psm_utility == 0 || view_.queue == nullptr) {
      return false;
    }
    const std::span<const BlockHash> own = blocks_of(prompt);
    std::ptrdiff_t shared = 0;
    for (const std::span<const BlockHash> begun : begun_) {
      shared = std::max(shared, std::ranges::mismatch(own, begun).in1 - own.begin());
    }
    begun_.push_back(own);
    // A token is computed in any case, so the last block of a prompt is never taken from the cache.
    const int64_t block = view_.budget.block_tokens;
    return std::min<int64_t>(shared, (prompt.known_tokens - 1) / block) * block >
           prompt.computed_tokens;
  }

  const SystemView& view_;
  const HyGenOptions& options_;
  const latency::StepTimeModel* const model_;
  const int32_t may_begin_;
  int32_t begun_offline_ = 0;
  StepDraft draft_;
  const VisitorRows visitors_;
  const int64_t ready_;
  Nanos least_time_{0};
  int64_t offline_blocks_ = 0;  // that offline requests hold with this plan
  bool offline_runs_ = false;
  const QueueEntry* head_ = nullptr;
  std::span<const QueueEntry* const> cursor_;      // in the queue
  std::vector<std::span<const BlockHash>> begun_;  // blocks of prompts that begin in this step
};

constexpr std::array<const PolicyOption*, 13> kHyGenOptions = {
    &kHyGenStepBudget, &kStepBudgetFlexOnly, &kPiggybackTokenBudget, &kFlexBlocks,  &kPsmUtility,
    &kDeadlineFirst,   &kFairTenants,        &kOffloadBelow,         &kOnloadAbove, &kHoldMeanTbt,
    &kHoldP99Tbt,      &kHoldMeanTtft,       &kHoldP99Ttft};
constexpr std::array<const PolicyOption*, 7> kSarathiPpOptions = {
    &kPiggybackTokenBudget, &kFlexBlocks,   &kPsmUtility, &kDeadlineFirst,
    &kFairTenants,          &kOffloadBelow, &kOnloadAbove};

Result<HyGenOptions> hygen_options(const PolicyOptions& options) {
  const PiggybackOptions shared = piggyback_options(options);
  if (options[kDeadlineFirst] == 1 && options[kPsmUtility] > 0) {
    return invalid_argument(
        "--deadline-first and --psm-utility are two orders of best effort: give one of them",
        "deadline-first");
  }
  return HyGenOptions{.token_budget = shared.token_budget,
                      .flex_blocks = options[kFlexBlocks],
                      .offload_below = shared.offload_below,
                      .onload_above = shared.onload_above,
                      .psm_utility = options[kPsmUtility],
                      .deadline_first = options[kDeadlineFirst] == 1,
                      .fair_tenants = options[kFairTenants] == 1};
}

BudgetGoals goals_of(const PolicyOptions& options) {
  const auto goal = [&options](const PolicyOption& option) {
    return options[option] == 0 ? Nanos::max() : std::chrono::microseconds(options[option]);
  };
  return {.mean_tbt = goal(kHoldMeanTbt),
          .p99_tbt = goal(kHoldP99Tbt),
          .mean_ttft = goal(kHoldMeanTtft),
          .p99_ttft = goal(kHoldP99Ttft)};
}

PolicyParts parts_of(const HyGenOptions& options, const latency::StepTimeModel* step_times) {
  return {.step = std::make_unique<HyGenPolicy>(options, step_times),
          .make_binder = fill_binder,
          .admission = nullptr};
}

// A budget below what a decode takes would leave best effort nothing but idle steps.
Status check_budget(const HyGenOptions& options, const latency::StepTimeModel& model) {
  latency::StepShape one;
  one.add_decode(1);
  const Nanos least = model.step_time(one);
  if (options.step_budget > least) {
    return {};
  }
  return invalid_argument(
      fmt::format(
          "--hygen-step-budget {} us leaves no time beside one decode, which alone takes "
          "{} us; give more",
          std::chrono::duration_cast<std::chrono::microseconds>(options.step_budget).count(),
          std::chrono::ceil<std::chrono::microseconds>(least).count()),
      "hygen-step-budget");
}

Result<PolicyParts> make_hygen(const PolicyOptions& options, const Beliefs& beliefs) {
  ASSIGN_OR_RETURN(HyGenOptions values, hygen_options(options));
  values.step_budget = std::chrono::microseconds(options[kHyGenStepBudget]);
  values.budget_flex_only = options[kStepBudgetFlexOnly] == 1;
  values.goals = goals_of(options);
  RETURN_IF_ERROR(check_budget(values, *beliefs.step_times));
  return parts_of(values, beliefs.step_times);
}

constexpr std::array<const PolicyOption*, 8> kHyGenStarOptions = {
    &kPiggybackTokenBudget, &kFlexBlocks, &kPsmUtility,   &kDeadlineFirst,
    &kFairTenants,          &kFlexRate,   &kOffloadBelow, &kOnloadAbove};

Result<PolicyParts> make_hygen_star(const PolicyOptions& options, const Beliefs& /*beliefs*/) {
  ASSIGN_OR_RETURN(HyGenOptions values, hygen_options(options));
  values.flex_rate = options[kFlexRate];
  return parts_of(values, nullptr);
}

Result<PolicyParts> make_sarathi_pp(const PolicyOptions& options, const Beliefs& /*beliefs*/) {
  ASSIGN_OR_RETURN(const HyGenOptions values, hygen_options(options));
  return parts_of(values, nullptr);
}

}  // namespace

constinit const PolicyDescriptor kHyGen{
    .name = "hygen",
    .summary =
        "best effort fills what latency-sensitive work leaves of a step's time budget; "
        "needs a profile",
    .traits = {.needs_step_times = true,
               .tiers = PolicyTiers::kBoth,
               .reads = {.targets = false},
               .tuned = &kHyGenStepBudget},
    .options = kHyGenOptions,
    .make = make_hygen};

constinit const PolicyDescriptor kSarathiPp{
    .name = "sarathi_pp",
    .summary = "as hygen without a budget of time: best effort fills the token budget",
    .traits = {.tiers = PolicyTiers::kBoth, .reads = {.targets = false}},
    .options = kSarathiPpOptions,
    .make = make_sarathi_pp};

constinit const PolicyDescriptor kHyGenStar{
    .name = "hygen_star",
    .summary = "as sarathi_pp, but best-effort requests begin at a fixed rate",
    .traits = {.tiers = PolicyTiers::kBoth, .reads = {.targets = false}, .tuned = &kFlexRate},
    .options = kHyGenStarOptions,
    .make = make_hygen_star};

HyGenPolicy::HyGenPolicy(const HyGenOptions& options, const latency::StepTimeModel* step_times)
    : options_(options), step_times_(step_times) {
  CHECK((step_times == nullptr) == (options.step_budget == Nanos::max()) &&
            options.token_budget > 0 && options.flex_blocks > 0 && options.flex_blocks <= 100,
        "a step budget of {} ns, a token budget of {}, {} % of the blocks",
        options.step_budget.count(), options.token_budget, options.flex_blocks);
  if (options.goals.any()) {
    controller_.emplace(options.step_budget, options.goals);
  }
}

std::string_view HyGenPolicy::name() const {
  if (step_times_ != nullptr) {
    return kHyGen.name;
  }
  return options_.flex_rate > 0 ? kHyGenStar.name : kSarathiPp.name;
}

std::unique_ptr<QueueOrder> HyGenPolicy::make_queue_order() const {
  std::unique_ptr<QueueOrder> order;
  if (options_.psm_utility > 0) {
    order = std::make_unique<PsmOrder>(options_.psm_utility);
  } else {
    order =
        fcfs_order(options_.deadline_first ? FcfsOrder::By::kDeadline : FcfsOrder::By::kClassFirst);
  }
  if (!options_.fair_tenants) {
    return order;
  }
  return std::make_unique<SplitOrder>(std::make_unique<VtcOrder>(), std::move(order));
}

StepPlan HyGenPolicy::plan(const SystemView& view) {
  if (controller_.has_value()) {
    controller_->observe(view);
    options_.step_budget = controller_->budget();
  }
  int32_t may_begin = kAllOfThem;
  if (options_.flex_rate > 0) {
    constexpr double kNanosOfRate = 1e12;
    constexpr double kMostSaved = 2;  // what was not used in a quiet time is lost
    const auto passed = static_cast<double>((view.now - counted_).count());
    may_begin_ = std::min(may_begin_ + passed * options_.flex_rate / kNanosOfRate, kMostSaved);
    counted_ = view.now;
    may_begin = std::max(static_cast<int32_t>(may_begin_), 0);
  }
  HyGenPlanning planning(view, options_, step_times_, may_begin);
  StepPlan plan = planning.plan();
  may_begin_ -= options_.flex_rate > 0 ? planning.begun_offline() : 0;
  if (step_times_ != nullptr) {
    plan.step_budget = options_.step_budget;
  }
  if (controller_.has_value()) {
    controller_->planned(planning.least_time(), plan.preempt);
  }
  return plan;
}

}  // namespace tandem
