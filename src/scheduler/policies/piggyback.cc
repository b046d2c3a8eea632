#include "scheduler/policies/piggyback.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/check.h"
#include "scheduler/plan_builder.h"

namespace tandem {
namespace {

constexpr ServiceClass kLs = ServiceClass::kLatencySensitive;
constexpr ServiceClass kBe = ServiceClass::kBestEffort;

// A part of a step's rows is kept for visitors where there are any, so that prompts and best-effort
// decodes do not shut them out.
constexpr int32_t kVisitorShareOfTokens = 4;
constexpr int32_t kVisitorShareOfLogits = 8;

// New best-effort prompts leave at least this share of the blocks free, in percent, where anything
// else runs: what arrives next should not have to send somebody away first.
constexpr int32_t kAdmissionMargin = 10;

// One planning.
class Planning {
 public:
  Planning(const SystemView& view, const PiggybackOptions& options)
      : view_(view),
        options_(options),
        builder_(view),
        fates_(view.running.size(), Fate::kOpen),
        step_tokens_(view.budget.tokens) {
    const auto parked = static_cast<int32_t>(view.offloaded.size());
    visitor_tokens_ = std::min(parked, view.budget.tokens / kVisitorShareOfTokens);
    visitor_logits_ = std::min(parked, std::max(1, view.budget.logit_rows / kVisitorShareOfLogits));
    for (const SequenceView& sequence : view.offloaded) {
      if (sequence.state == SequenceState::kOffloading) {
        coming_ += sequence.own_blocks;
      }
    }
  }

  StepPlan plan() {
    decode(kLs);
    bring_back(kLs);
    prefill(kLs);
    admit(kLs);
    make_room_for_best_effort();
    decode(kBe);
    prefill(kBe);
    admit(kBe);
    bring_back(kBe);
    StepPlan plan = builder_.finish();
    write_through(plan);
    return plan;
  }

 private:
  enum class Fate : uint8_t { kOpen, kPlanned, kGone };
  enum class Room : uint8_t {
    kMade,    // blocks are free now
    kComing,  // they will be, when copies are done
    kNone,
  };

  [[nodiscard]] int64_t share(int32_t percent) const {
    return view_.budget.total_blocks * percent / 100;
  }
  [[nodiscard]] int64_t blocks_for(int64_t tokens) const {
    return (tokens + view_.budget.block_tokens - 1) / view_.budget.block_tokens;
  }
  [[nodiscard]] int32_t prompt_room() const {
    return std::min(options_.token_budget - (step_tokens_ - builder_.tokens_left()),
                    builder_.tokens_left() - visitor_tokens_);
  }

  // ---- whom to send away
  [[nodiscard]] static bool may_go_to_the_host(const SequenceView& sequence) {
    return sequence.decodes() && sequence.host_failures == 0;
  }

  // The newest running one of a class that has no part in the plan yet, and may go there.
  enum class Where : uint8_t { kHost, kAway };
  [[nodiscard]] std::optional<size_t> newest(ServiceClass service_class, Where where) const {
    for (size_t i = fates_.size(); i-- > 0;) {
      const SequenceView& sequence = view_.running[i];
      if (fates_[i] == Fate::kOpen && sequence.service_class == service_class &&
          (where == Where::kAway || may_go_to_the_host(sequence))) {
        return i;
      }
    }
    return std::nullopt;
  }

  // Those that are on the host already will each need blocks to grow: only latency-sensitive work
  // takes the last ones.
  enum class Need : uint8_t { kUrgent, kWish };
  bool offload(size_t index, Need need) {
    const SequenceView& sequence = view_.running[index];
    const int64_t growth = need == Need::kUrgent ? 0 : std::ssize(view_.offloaded) + 1;
    if (builder_.host_blocks_left() < sequence.transfer_blocks + growth) {
      return false;
    }
    if (builder_.offload(sequence) != Fit::kFits) {
      return false;
    }
    fates_[index] = Fate::kGone;
    coming_ += sequence.own_blocks;
    return true;
  }

  void offload_best_effort(int64_t wanted, Need need) {
    while (coming_ < wanted) {
      const std::optional<size_t> victim = newest(kBe, Where::kHost);
      if (!victim.has_value() || !offload(*victim, need)) {
        return;
      }
    }
  }

  // `missing` blocks for a sequence of `service_class`. A running one may drop others of its class,
  // itself included; a waiting latency-sensitive one takes from best effort only, a waiting
  // best-effort one from nobody.
  enum class Claim : uint8_t { kRunning, kWaiting };
  Room make_room(ServiceClass service_class, int64_t missing, Claim claim) {
    offload_best_effort(missing, service_class == kLs ? Need::kUrgent : Need::kWish);
    if (coming_ > 0) {
      return Room::kComing;
    }
    std::optional<size_t> victim;
    if (service_class == kLs || claim == Claim::kRunning) {
      victim = newest(kBe, Where::kAway);
    }
    if (!victim.has_value() && service_class == kLs && claim == Claim::kRunning) {
      victim = newest(kLs, Where::kAway);
      refused_ = true;
      if (victim.has_value() && may_go_to_the_host(view_.running[*victim]) &&
          offload(*victim, Need::kUrgent)) {
        return Room::kComing;
      }
    }
    if (!victim.has_value()) {
      return Room::kNone;
    }
    builder_.preempt(view_.running[*victim]);
    fates_[*victim] = Fate::kGone;
    made_ += view_.running[*victim].own_blocks;
    return Room::kMade;
  }

  // ---- what runs
  void add(size_t index, int32_t tokens) {
    const SequenceView& sequence = view_.running[index];
    while (fates_[index] == Fate::kOpen) {
      const Fit fit = builder_.add(sequence, tokens);
      if (fit == Fit::kFits) {
        fates_[index] = Fate::kPlanned;
      }
      if (fit != Fit::kNoBlocks) {
        return;
      }
      const int64_t needed = blocks_for(sequence.computed_tokens + tokens) - sequence.held_blocks +
                             sequence.copy_blocks - builder_.blocks_left();
      if (make_room(sequence.service_class, needed, Claim::kRunning) != Room::kMade) {
        refused_ = true;
        return;
      }
    }
  }

  void decode(ServiceClass service_class) {
    for (size_t i = 0; i < fates_.size(); ++i) {
      const SequenceView& sequence = view_.running[i];
      if (sequence.service_class != service_class || !sequence.decodes()) {
        continue;
      }
      if (service_class == kBe && builder_.logit_rows_left() <= visitor_logits_) {
        return;
      }
      add(i, 1);
    }
  }

  void prefill(ServiceClass service_class) {
    for (size_t i = 0; i < fates_.size(); ++i) {
      const SequenceView& sequence = view_.running[i];
      if (sequence.service_class != service_class || sequence.decodes()) {
        continue;
      }
      const int32_t tokens = std::min(sequence.pending_tokens(), prompt_room());
      if (tokens > 0) {
        add(i, tokens);
      }
    }
  }

  void admit(ServiceClass service_class) {
    for (const SequenceView& sequence : view_.waiting) {
      if (sequence.service_class != service_class) {
        continue;
      }
      if (!admit_one(sequence)) {
        refused_ = true;
        return;  // no skipping ahead: that would starve the long ones
      }
    }
  }

  [[nodiscard]] int64_t blocks_to_begin(const SequenceView& waiting) const {
    return blocks_for(waiting.known_tokens + 1) -
           waiting.computed_tokens / view_.budget.block_tokens + waiting.cached_free_blocks;
  }
  [[nodiscard]] int64_t kept_beside_best_effort() const {
    return share(std::min(options_.offload_below, kAdmissionMargin)) + reserved_;
  }

  bool admit_one(const SequenceView& sequence) {
    const int32_t tokens = std::min(sequence.pending_tokens(), prompt_room());
    const int64_t needed = blocks_to_begin(sequence);
    const bool best_effort = sequence.service_class == kBe;
    // Nobody is let in while somebody else waits for room, nor beside one that is dropped: the
    // blocks that they share would be counted twice.
    if (tokens < 1 || refused_ || builder_.preempts()) {
      return false;
    }
    if (best_effort && !view_.running.empty()) {
      if (builder_.blocks_left() - needed < kept_beside_best_effort()) {
        return false;
      }
    }
    const Fit fit = builder_.admit(sequence, tokens);
    if (fit == Fit::kNoSequences && !best_effort) {
      offload_best_effort(coming_ + 1, Need::kUrgent);  // frees a place for the next step
    }
    if (fit == Fit::kNoBlocks) {
      const int64_t missing = std::max<int64_t>(needed - builder_.blocks_left(), 1);
      for (Room room = Room::kMade; room == Room::kMade && missing > made_;) {
        room = make_room(sequence.service_class, missing - made_, Claim::kWaiting);
      }
    }
    return fit == Fit::kFits;
  }

  // ---- to and fro
  // Where few blocks are free, or too few for the prompt that comes next: its answer rides along
  // on the host rather than its beginning waiting for others' ends.
  void make_room_for_best_effort() {
    int64_t wanted = share(options_.offload_below) + reserved_;
    const auto next = std::ranges::find(view_.waiting, kBe, &SequenceView::service_class);
    if (next != view_.waiting.end() && !refused_ && next->choices <= view_.budget.sequences) {
      wanted = std::max(wanted, blocks_to_begin(*next) + kept_beside_best_effort());
    }
    offload_best_effort(wanted - builder_.blocks_left(), Need::kWish);
  }

  // Best-effort prompts that will be offloaded when they are done, as far as one can tell: where
  // few blocks are free, or others were offloaded before.
  void write_through(StepPlan& plan) const {
    const bool expected = !view_.offloaded.empty() || !view_.waiting.empty() ||
                          view_.budget.free_blocks <= share(options_.offload_below);
    int64_t room = view_.budget.host_free_blocks - std::ssize(view_.offloaded);
    for (size_t i = 0; expected && i < fates_.size(); ++i) {
      const SequenceView& sequence = view_.running[i];
      if (sequence.service_class != kBe || sequence.decodes() || sequence.host_failures > 0 ||
          fates_[i] == Fate::kGone || sequence.computed_tokens < view_.budget.block_tokens) {
        continue;
      }
      room -= blocks_for(sequence.known_tokens);  // all of it will need a place there
      if (room < 0) {
        return;
      }
      plan.write_through.push_back(sequence.id);
    }
  }

  void bring_back(ServiceClass service_class) {
    const bool best_effort = service_class == kBe;
    if (best_effort && (refused_ || builder_.preempts() || options_.onload_above >= 100)) {
      return;
    }
    for (const SequenceView& sequence : view_.offloaded) {
      if (sequence.service_class != service_class || sequence.tier != Tier::kHost ||
          sequence.state == SequenceState::kOnloading) {
        continue;
      }
      const int64_t blocks =
          std::max<int64_t>(sequence.transfer_blocks, blocks_for(sequence.known_tokens));
      const bool between_tokens = sequence.state == SequenceState::kParkedWaiting ||
                                  sequence.state == SequenceState::kSwapped;
      const int64_t kept = best_effort ? share(options_.onload_above) + reserved_ : 0;
      const bool comes = between_tokens && !refused_ && builder_.blocks_left() - blocks >= kept &&
                         builder_.onload(sequence) == Fit::kFits;
      if (!comes && !best_effort) {
        reserved_ += blocks;
      }
    }
  }

  const SystemView& view_;
  const PiggybackOptions& options_;
  PlanBuilder builder_;
  std::vector<Fate> fates_;  // by index in view.running
  int32_t step_tokens_;
  int32_t visitor_tokens_ = 0;
  int32_t visitor_logits_ = 0;
  int64_t coming_ = 0;    // blocks that offloads under way and planned will free
  int64_t made_ = 0;      // blocks that dropped ones have freed
  int64_t reserved_ = 0;  // blocks that latency-sensitive ones on the host wait for
  bool refused_ = false;  // somebody waits for room
};

}  // namespace

PiggybackPolicy::PiggybackPolicy(const PiggybackOptions& options) : options_(options) {
  CHECK(options.token_budget > 0 && options.offload_below >= 0 &&
            options.offload_below <= options.onload_above && options.onload_above <= 100,
        "a token budget of {}, offload below {} %, onload above {} %", options.token_budget,
        options.offload_below, options.onload_above);
}

StepPlan PiggybackPolicy::plan(const SystemView& view) { return Planning(view, options_).plan(); }

}  // namespace tandem
