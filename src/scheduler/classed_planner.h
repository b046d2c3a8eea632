// What policies for two classes on two tiers share: putting sequences into a plan and making room
// for them. Where blocks are missing, first best-effort decodes are offloaded, newest first, and
// whoever needs the blocks waits until they come; only where the host has no room are best-effort
// sequences recomputed, newest first; latency-sensitive ones go last, onto the host where that has
// room. Whom to drop: victims.h. In which order, and how many tokens each, is the policy's
// business.
//
// One object per planning; borrows the view.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "plan/views.h"
#include "scheduler/plan_builder.h"

namespace tandem {

// For sequences that begin; no places: none does.
struct RoomAhead {
  int32_t places = 0;
  int64_t blocks = 0;
};

class ClassedPlanner {
 public:
  explicit ClassedPlanner(const SystemView& view);

  // Those that are on the host already will each need blocks to grow: only urgent needs take the
  // last ones.
  enum class Need : uint8_t { kUrgent, kWish };

  // The next `tokens` of running sequence `index`, which makes room as a running one of its class
  // does: by others of its class too, itself included. Nothing where it has gone already.
  void add(size_t index, int32_t tokens);

  // Lets a waiting one begin with `tokens` (>= 1). Refuses all admissions while another sequence
  // waits for room, and beside one that is dropped: what is free now is that one's place. A
  // latency-sensitive one makes room at the cost of best effort, for the next step; a best-effort
  // one of nobody.
  bool admit(const SequenceView& waiting, int32_t tokens);

  // Lets one begin that goes straight to the host. It makes no room, and waits for none on the
  // accelerator.
  bool admit_to_host(const SequenceView& waiting) {
    return !builder_.preempts() && builder_.admit_to_host(waiting) == Fit::kFits;
  }

  // Whether the next step finds so much room beside what running sequences still need.
  [[nodiscard]] bool has_room_ahead(const RoomAhead& room) const {
    return room.places == 0 ||
           (builder_.sequences_left() + leaving_ >= room.places && missing_ahead(room) <= 0);
  }
  // Makes it at the cost of best effort, as for a promised one that is admitted, as far as that can
  // be done in this step.
  void make_room_ahead(const RoomAhead& room);

  // Begins to offload best-effort decodes without a part in this plan, newest first, until `wanted`
  // blocks are on their way.
  void offload_best_effort(int64_t wanted, Need need);
  // The same for a single one; false: not now.
  bool offload(size_t index, Need need);

  // Offloaded ones of a class between two tokens move back while `kept` blocks stay free, at most
  // `most` of them. What latency-sensitive ones still wait for is kept from best effort.
  void bring_back(ServiceClass service_class, int64_t kept, int32_t most);

  // A latency-sensitive sequence waits on the host without compute: makes room for it as for one
  // that waits in the queue. To be called before bring_back, oldest admission first.
  void make_room_to_return(const SequenceView& parked);
  // Blocks that sequences of make_room_to_return still lack after bring_back.
  [[nodiscard]] int64_t blocks_to_return() const { return blocks_to_return_; }

  // Best-effort prompts that will be offloaded when they are done, as far as one can tell, are
  // written through: where at most `few_blocks` are free, or others wait or were offloaded before.
  void write_through_best_effort(int64_t few_blocks);

  // Running, decodes, of this class, and without a part in the plan so far.
  [[nodiscard]] bool may_decode(size_t index, ServiceClass service_class) const;
  // The same of prompts.
  [[nodiscard]] bool may_prefill(size_t index, ServiceClass service_class) const;
  [[nodiscard]] bool planned(size_t index) const { return fates_[index] == Fate::kPlanned; }

  // Somebody waits for room.
  [[nodiscard]] bool refused() const { return refused_; }
  void note_refused() { refused_ = true; }
  // Blocks that latency-sensitive ones on the host wait for.
  [[nodiscard]] int64_t reserved_blocks() const { return reserved_; }
  [[nodiscard]] int64_t blocks_for(int64_t tokens) const {
    return (tokens + view_.budget.block_tokens - 1) / view_.budget.block_tokens;
  }
  [[nodiscard]] int64_t share_of_blocks(int32_t percent) const {
    return view_.budget.total_blocks * percent / 100;
  }
  [[nodiscard]] int64_t blocks_to_begin(const SequenceView& waiting) const;
  // That running sequence `index` lacks for its next `tokens`.
  [[nodiscard]] int64_t blocks_to_grow(size_t index, int32_t tokens) const;
  [[nodiscard]] const PlanBuilder& builder() const { return builder_; }
  [[nodiscard]] StepPlan finish() {
    StepPlan plan = builder_.finish();
    plan.write_through = std::move(write_through_);
    return plan;
  }

 private:
  enum class Fate : uint8_t { kOpen, kPlanned, kGone };
  enum class Where : uint8_t { kHost, kAway };
  enum class Room : uint8_t {
    kMade,    // blocks are free now
    kComing,  // they will be, when copies are done
    kNone,
  };

  [[nodiscard]] bool may_go(size_t index, ServiceClass service_class) const {
    return fates_[index] == Fate::kOpen && view_.running[index].service_class == service_class;
  }
  [[nodiscard]] std::optional<size_t> newest(ServiceClass service_class, Where where) const;
  [[nodiscard]] int64_t missing_ahead(const RoomAhead& room) const {
    return room.blocks + builder_.blocks_before_best_effort() - builder_.blocks_left();
  }
  void make_places(int32_t places, bool may_drop);
  [[nodiscard]] int64_t blocks_to_onload(const SequenceView& parked) const {
    return std::max<int64_t>(parked.transfer_blocks, blocks_for(parked.known_tokens));
  }
  void drop(size_t index);
  // For running sequence `asker`, or for one that waits.
  Room make_room(ServiceClass service_class, int64_t missing, std::optional<size_t> asker);
  // Drops the newest sequence of a class at or behind place `first`. `asker`: where the blocks are
  // for one of the same class.
  Room drop_newest(ServiceClass service_class, size_t first, std::optional<size_t> asker);
  bool drop_sharers(ServiceClass service_class, size_t first);

  const SystemView& view_;
  PlanBuilder builder_;
  std::vector<Fate> fates_;  // by index in view.running
  int64_t coming_ = 0;       // blocks that offloads under way and planned will free
  int32_t leaving_ = 0;      // places that dropped and offloaded ones leave to the next step
  bool more_comes_ = false;  // those that go shared blocks: the next plan knows what that freed
  int64_t reserved_ = 0;
  int64_t blocks_to_return_ = 0;
  std::vector<SequenceId> returning_;  // of make_room_to_return
  bool refused_ = false;
  std::vector<SequenceId> write_through_;
};

}  // namespace tandem
