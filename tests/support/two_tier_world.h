// An engine over two tiers in virtual time, driven by a policy that does whatever is legal, by
// chance.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "engine/engine.h"
#include "plan/fcfs_order.h"
#include "scheduler/plan_builder.h"
#include "support/shuffled_order.h"
#include "support/virtual_world.h"

namespace tandem::testing {

inline std::vector<TokenId> prompt_of(int length, TokenId first = 10) {
  std::vector<TokenId> prompt(static_cast<size_t>(length));
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

struct Dice {
  uint64_t seed = 1;
  int offload = 30;  // of 100, for each running sequence that could go
  int onload = 20;   // of 100, for each parked one
  int drop = 2;      // of 100, for each parked one
  int preempt = 2;   // of 100, for each running one
  int straight = 0;  // of 100, for each waiting sequence that could go straight to the host
  bool only_decodes = false;
  // Also what no policy does today: any order of the queue, sequences admitted past others,
  // tokens held on the host, lanes and moves between them, copies to the host beforehand, stages
  // that are read.
  bool anything = false;
};

// Does whatever is legal, by chance, and otherwise what everybody does: the oldest goes on.
class ChancePolicy final : public StepPolicy {
 public:
  explicit ChancePolicy(const Dice& dice) : dice_(dice), random_(dice.seed) {}
  [[nodiscard]] std::string_view name() const override { return "chance"; }
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override {
    if (dice_.anything && dice_.seed % 3 == 0) {
      return std::make_unique<ShuffledOrder>(dice_.seed);
    }
    return fcfs_order(dice_.seed % 2 == 0 ? FcfsOrder::By::kArrival : FcfsOrder::By::kClassFirst);
  }

  [[nodiscard]] bool reads_stages() const override { return dice_.anything; }

  StepPlan plan(const SystemView& view) override {
    PlanBuilder builder(view);
    const bool moves = move_offloaded(view, builder);
    fates_.assign(view.running.size(), Fate::kOpen);
    for (size_t i = 0; i < view.running.size(); ++i) {
      send_away(view.running[i], fates_[i], builder);
    }
    for (size_t i = 0; i < view.running.size(); ++i) {
      go_on(view, i, builder);
    }
    if (builder.preempts()) {
      return builder.finish();
    }
    if (dice_.anything && chance(50)) {
      admit_anywhere(view, builder);
    } else {
      admit_in_order(view, builder);
    }
    StepPlan plan = builder.finish();
    if (dice_.anything) {
      add_anything(view, plan);
    }
    if (!moves && plan.slices.empty() && plan.offload.empty()) {
      for (const SequenceView& sequence : view.offloaded) {
        if (sequence.state == SequenceState::kSwapped) {  // nobody else will make room for it
          plan.preempt.push_back(sequence.id);
          break;
        }
      }
    }
    return plan;
  }

 private:
  enum class Fate : uint8_t { kOpen, kGone, kPlanned };

  bool goes_straight(const SequenceView& sequence, PlanBuilder& builder) {
    return dice_.straight > 0 && builder.may_go_straight_to_host(sequence) &&
           chance(dice_.straight) && builder.admit_to_host(sequence) == Fit::kFits;
  }

  void admit_in_order(const SystemView& view, PlanBuilder& builder) {
    for (const SequenceView& sequence : view.waiting) {
      if (goes_straight(sequence, builder)) {
        continue;
      }
      const int32_t tokens = std::min(sequence.pending_tokens(), builder.tokens_left());
      if (tokens < 1 || builder.admit(sequence, tokens) != Fit::kFits) {
        break;
      }
    }
  }

  // From all of the queue, past those that find no room.
  void admit_anywhere(const SystemView& view, PlanBuilder& builder) {
    for (auto run = view.queue->next(nullptr); !run.empty(); run = view.queue->next(run.back())) {
      for (const QueueEntry* entry : run) {
        const std::optional<SequenceView> sequence = view.queue->show(*entry);
        const int32_t left = builder.tokens_left();
        if (left > 0 && sequence.has_value() && (chance(60) || view.running.empty())) {
          if (goes_straight(*sequence, builder)) {
            continue;
          }
          const int32_t tokens = std::min(sequence->pending_tokens(), left);
          builder.admit(*sequence, 1 + static_cast<int32_t>(random_() % uint64_t(tokens)));
        }
      }
    }
  }

  void add_anything(const SystemView& view, StepPlan& plan) {
    if (!view.offloaded.empty() && chance(40)) {
      plan.mode = StepMode::kLanes;
    }
    const bool goes_on = !plan.slices.empty();
    for (const SequenceView& sequence : view.offloaded) {
      if (plan.mode == StepMode::kLanes && chance(50)) {
        plan.first_lane.push_back(sequence.id);
      }
      if (plan.mode == StepMode::kGroups && chance(30)) {
        plan.second_lane.push_back(sequence.id);
      }
      if (sequence.state == SequenceState::kParkedInFlight &&
          std::ranges::count(plan.preempt, sequence.id) == 0 && chance(30)) {
        plan.lane_moves.push_back({.sequence = sequence.id, .lane = chance(50) ? 1 : 0});
      }
      if (goes_on && std::ranges::count(plan.onload, sequence.id) == 0 && chance(30)) {
        plan.hold.push_back(sequence.id);
      }
    }
    for (const StepPlan::Slice& slice : plan.slices) {
      if (std::ranges::count(plan.admit, slice.sequence) == 0 && chance(20)) {
        plan.write_through.push_back(slice.sequence);
      }
    }
  }

  bool chance(int of_hundred) { return static_cast<int>(random_() % 100) < of_hundred; }

  bool move_offloaded(const SystemView& view, PlanBuilder& builder) {
    bool any = false;
    for (const SequenceView& sequence : view.offloaded) {
      const bool parked = sequence.state == SequenceState::kParkedWaiting;
      if ((parked || sequence.state == SequenceState::kSwapped) &&
          chance(parked ? dice_.onload : 80)) {
        any |= builder.onload(sequence) == Fit::kFits;
      } else if ((parked || sequence.state == SequenceState::kParkedInFlight) &&
                 chance(dice_.drop)) {
        builder.preempt(sequence);
        any = true;
      }
    }
    return any;
  }

  void send_away(const SequenceView& sequence, Fate& fate, PlanBuilder& builder) {
    const bool could = sequence.computed_tokens > 0 && sequence.held_blocks > 0 &&
                       (sequence.decodes() || !dice_.only_decodes);
    if (could && chance(dice_.offload)) {
      fate = builder.offload(sequence) == Fit::kFits ? Fate::kGone : Fate::kOpen;
    } else if (chance(dice_.preempt)) {
      builder.preempt(sequence);
      fate = Fate::kGone;
    }
  }

  void go_on(const SystemView& view, size_t index, PlanBuilder& builder) {
    if (fates_[index] != Fate::kOpen) {
      return;
    }
    const SequenceView& sequence = view.running[index];
    const int32_t tokens = std::min({sequence.pending_tokens(), builder.tokens_left(),
                                     1 + static_cast<int32_t>(random_() % 30)});
    if (tokens < 1) {
      return;
    }
    Fit fit = builder.add(sequence, tokens);
    for (size_t victim = view.running.size(); fit == Fit::kNoBlocks && victim-- > index;) {
      if (fates_[victim] == Fate::kOpen) {
        builder.preempt(view.running[victim]);
        fates_[victim] = Fate::kGone;
        if (victim == index) {
          return;
        }
        fit = builder.add(sequence, tokens);
      }
    }
    fates_[index] = fit == Fit::kFits ? Fate::kPlanned : fates_[index];
  }

  Dice dice_;
  std::mt19937_64 random_;
  std::vector<Fate> fates_;
};

inline WorldOptions two_tiers(const Dice& dice, int64_t blocks = 32, int64_t host_blocks = 64,
                              int32_t places = 16) {
  WorldOptions options;
  options.make_policy = [dice] { return std::make_unique<ChancePolicy>(dice); };
  options.executor.limits.total_blocks = blocks;
  options.executor.limits.host_blocks = host_blocks;
  options.executor.limits.offloaded_sequences = places;
  options.executor.host.seed = dice.seed;
  options.audit = WorldOptions::Audit::kEachAdvance;
  return options;
}

inline void expect_drained(VirtualWorld& world) {
  const KvManager& kv = world.engine().kv();
  EXPECT_EQ(kv.free_blocks(), kv.total_blocks());
  EXPECT_EQ(kv.free_blocks(Tier::kHost) + kv.blocks_out_of_use(Tier::kHost),
            kv.total_blocks(Tier::kHost));
  EXPECT_EQ(world.engine().load().running, 0);
  EXPECT_TRUE(world.executor().host().drained());
}

}  // namespace tandem::testing
