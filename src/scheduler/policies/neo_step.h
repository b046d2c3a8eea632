// One planning of NEO's scheduler (neo.h has the rules), and of APEX's, which differs in how
// offloaded tokens join (apex.h; its authors built it into NEO's program). Lives for the call;
// borrows the view, in which the offloaded sequences stand in the order of the host's queue and,
// unless the rules are the repaired ones, all sequences are best effort.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/decisions.h"
#include "plan/views.h"
#include "scheduler/lane_placement.h"
#include "scheduler/lane_times.h"
#include "scheduler/overlap_times.h"
#include "scheduler/policies/neo.h"
#include "scheduler/step_draft.h"

namespace tandem {

class NeoStep {
 public:
  struct Times {
    const LaneModel& model;
    const latency::HostTimes* host = nullptr;  // null: not known
  };
  // `step_limit`: Nanos::max() if no target bounds the step.
  NeoStep(const NeoRules& rules, const Times& times, const SystemView& view, Nanos step_limit,
          NeoMemory& memory);
  // Needs to be called once.
  StepPlan plan();

 private:
  // A waiting best-effort prompt that may begin in this step.
  struct Prompt {
    const SequenceView* sequence = nullptr;
    int32_t tokens = 0;
    bool host_bound = false;
    bool straight = false;  // over the staging layers
  };
  // The step in one of its forms.
  struct Choice {
    size_t prompts = 0;  // the first ones of prompts_
    Placement placement;
    double credit = 0;  // requests, or output tokens
    Nanos time{0};
    StepForm form = StepForm::kResident;
    Nanos for_overdue{0};      // the part of `time` that an overdue decode adds
    bool moves_first = false;  // tokens under way in the first lane move to the second
    [[nodiscard]] double rate() const {
      return credit / std::max(static_cast<double>(time.count()), 1.0);
    }
  };
  enum class Entering : uint8_t { kNone, kOverdue, kSome };  // kOverdue: the oldest such
  struct Candidate {
    HostDecode decode;
    const SequenceView* sequence = nullptr;
  };
  // Where tokens under way would be in a step with lanes.
  struct LanesUnderWay {
    Lanes lanes{};
    int32_t second_stage = 0;  // the first stage that has a token of the second lane
    bool moves_first = false;
  };
  // Of a step, for tokens of the host.
  struct HostReserve {
    int32_t rows = 0;
    Nanos time{0};
  };
  // A latency-sensitive prompt that waits for its first token.
  struct FirstToken {
    Nanos due{0};
    int64_t pending = 0;  // tokens, prompts before it included
  };

  // Who is where.
  [[nodiscard]] bool has_host() const { return view_.budget.host_total_blocks > 0; }
  [[nodiscard]] bool host_is_small() const {
    return view_.budget.host_total_blocks <= view_.budget.total_blocks;
  }
  [[nodiscard]] bool is_alone() const { return view_.running.empty() && view_.offloaded.empty(); }
  [[nodiscard]] bool any_offloaded_is(SequenceState state) const;
  [[nodiscard]] bool is_host_bound(const SequenceView& sequence) const;
  void mark_host_bound(const SequenceView& sequence);
  [[nodiscard]] bool stays_within_host(int64_t blocks) const;
  void count_host_blocks();
  void tell_small_host();
  void tell_large_prompt(int64_t blocks);
  [[nodiscard]] bool is_as_published() const {
    return !rules_.repaired && rules_.join == HostJoin::kByNeo;
  }
  void send_finished_prompts();
  void make_room_for_head();
  void add_decodes(ServiceClass service_class);
  void bring_back(ServiceClass service_class);
  [[nodiscard]] int32_t returns_in_order(int64_t kept) const;

  // Prompts.
  [[nodiscard]] int32_t tokens_of(const SequenceView& prompt, int32_t rows) const;
  [[nodiscard]] bool has_prompts() const {  // in the step, so far
    return !prompts_.empty() || draft_.shape().prefill_slices > 0;
  }
  void add_running_prompts(ServiceClass service_class);
  void count_begun(const SequenceView& prompt, int32_t tokens);
  void count_first_token(const SequenceView& prompt);
  void admit_latency_sensitive();
  void collect_prompts();
  [[nodiscard]] bool collect(const SequenceView& waiting);
  [[nodiscard]] bool finds_room(const SequenceView& waiting, int32_t tokens) const;
  [[nodiscard]] bool finds_blocks(const SequenceView& waiting, int32_t tokens) const;
  [[nodiscard]] bool goes_to_host(const SequenceView& waiting, int64_t blocks, bool has_room) const;
  [[nodiscard]] bool follows_to_host() const;
  [[nodiscard]] bool stages_prompts() const { return view_.budget.staging_blocks > 0; }
  [[nodiscard]] bool lacks_blocks(const SequenceView& waiting, int32_t tokens) const {
    return draft_.builder().missing_to_admit(waiting, tokens) > 0;
  }
  [[nodiscard]] bool will_go_straight(const SequenceView& head) const;
  [[nodiscard]] bool goes_straight(const SequenceView& waiting, int32_t tokens) const;
  void add_prompt(const Prompt& prompt, int64_t blocks);
  [[nodiscard]] bool host_takes(const SequenceView& waiting, int64_t blocks) const;
  [[nodiscard]] int64_t blocks_for_output(const SequenceView& waiting) const;
  [[nodiscard]] latency::StepShape shape_with(size_t prompts) const;
  [[nodiscard]] bool is_small(const Lane& first) const;
  [[nodiscard]] size_t without_host_bound_tail(const Placement* placement) const;

  // Lanes or none.
  void find_under_way();
  void find_host_decodes();
  void order_host_decodes();
  [[nodiscard]] bool any_overdue() const {
    return std::ranges::any_of(decodes_, &HostDecode::overdue);
  }
  [[nodiscard]] HostReserve reserve_beside(const latency::StepShape& shape,
                                           const HostDecode* overdue) const;
  [[nodiscard]] std::optional<HostDecode> overdue_on_host() const;
  void reserve_for_host();
  // Whether the step has prompts, the last step had lanes, and the rules are repaired.
  [[nodiscard]] bool takes_prompts_beside_lanes() const {
    return rules_.repaired && memory_.had_lanes && has_prompts();
  }
  [[nodiscard]] int32_t rows_for_lanes() const;
  [[nodiscard]] PlacementLimits placement_limits(const Lanes& lanes) const;
  [[nodiscard]] bool comes_back() const;
  [[nodiscard]] Placement placed(const Lanes& lanes) const;
  [[nodiscard]] double credit_of(const Lanes& lanes, size_t prompts) const;
  [[nodiscard]] Choice resident_choice() const;
  [[nodiscard]] std::span<const LanesUnderWay> ways_in_lanes() const;
  [[nodiscard]] Choice lanes_choice(const LanesUnderWay& under_way) const;
  [[nodiscard]] bool any_first_token_due() const {
    return std::ranges::any_of(first_tokens_,
                               [](const FirstToken& prompt) { return prompt.due < Nanos::max(); });
  }
  [[nodiscard]] bool may_wait_for_host(const Choice& lanes) const;
  [[nodiscard]] double worth_of_waiting(const Choice& lanes, const Choice& resident) const;
  [[nodiscard]] Choice with_waiting(Choice lanes, const Choice& resident,
                                    const LanesUnderWay& under_way) const;
  [[nodiscard]] Choice better_with_waiting(Choice lanes, const LanesUnderWay& under_way) const;
  [[nodiscard]] Choice priced_lanes(Choice choice, const LanesUnderWay& under_way) const;
  [[nodiscard]] Choice best_lanes(const Choice& resident) const;
  [[nodiscard]] latency::StepShape resident_decodes() const;
  [[nodiscard]] double worth_of_time(const Choice& resident) const;
  [[nodiscard]] Nanos longest_lanes(const Choice& resident) const;
  [[nodiscard]] Choice best_of(Choice lanes, const Choice& resident) const;
  [[nodiscard]] bool lanes_gain(const Choice& lanes, const Choice& resident) const;
  [[nodiscard]] bool makes_first_token_late(const Choice& lanes, const Choice& resident) const;
  void count_prompt_time(size_t prompts);
  StepPlan finish(const Choice& choice);
  void name_lanes(const Choice& choice, StepPlan& plan);
  void move_first_lane(StepPlan& plan) const;
  void tell_lone(const StepPlan& plan);

  // APEX: lanes, overlap or neither.
  StepPlan plan_apex();
  [[nodiscard]] HostRows host_rows() const;
  [[nodiscard]] Choice published_choice(const Choice& resident, bool lanes_hold) const;
  [[nodiscard]] bool host_begins(const Choice& resident, const Choice& overlap) const;
  [[nodiscard]] bool under_way_fits_lanes() const;
  [[nodiscard]] std::vector<Choice> joining_choices(const Choice& base) const;
  [[nodiscard]] Choice best_choice() const;
  [[nodiscard]] Choice overlap_choice(Entering entering) const;
  [[nodiscard]] int64_t places_in_overlap() const;
  [[nodiscard]] std::vector<size_t> overlap_joiners(Entering entering, Nanos step) const;
  [[nodiscard]] OverlapStep overlap_with(const latency::StepShape& residents,
                                         std::span<const size_t> joiners) const;
  [[nodiscard]] bool joins_overlap(const Candidate& candidate, Nanos step) const;
  [[nodiscard]] Choice lanes_of_under_way(const LanesUnderWay& under_way) const;
  [[nodiscard]] Nanos added_by(const SequenceView& prompt, const Lane& beside) const;
  [[nodiscard]] bool host_is_the_limit(const SequenceView& prompt) const;
  [[nodiscard]] double rate_by_overlap(Nanos for_prompts) const;
  [[nodiscard]] double rate_of_full_lanes(const Lanes& lanes, Nanos for_prompts) const;
  [[nodiscard]] bool overlap_would_give_more(const SequenceView& prompt, const Lanes& lanes) const;
  [[nodiscard]] bool host_is_late() const;

  const NeoRules& rules_;
  const LaneModel& model_;
  const latency::HostTimes* const host_times_;
  const SystemView& view_;
  const Nanos step_limit_;
  NeoMemory& memory_;
  StepDraft draft_;
  int64_t host_limit_ = 0;          // blocks that the host may hold when a prompt begins
  int64_t host_used_ = 0;           // that it holds, or will when prompts bound for it are done
  int64_t leaving_ = 0;             // blocks of prompts bound for the host, on the accelerator
  RoomAhead kept_for_head_;         // for the prompt that waits for room
  bool sends_away_ = false;         // others leave to make it
  bool first_token_waits_ = false;  // a latency-sensitive prompt found no blocks
  std::vector<Prompt> prompts_;
  int32_t prompt_rows_ = 0;
  int32_t prompt_logits_ = 0;
  int32_t prompt_choices_ = 0;
  int64_t prompt_blocks_ = 0;
  int64_t straight_blocks_ = 0;       // in the staging layers
  int64_t straight_host_blocks_ = 0;  // for the same prompts and their next tokens
  double begun_credit_ = 0;  // the share of each prompt in the draft that the step computes
  std::vector<FirstToken> first_tokens_;  // in the order in which they are computed
  int64_t first_token_pending_ = 0;       // tokens of all of them
  int64_t first_token_chunk_ = 0;         // of these, in the draft
  Nanos chunk_limit_;                     // of a step, while prompts are cut
  int32_t rows_for_host_ = 0;             // that prompts leave
  std::vector<Candidate> candidates_;     // that may join a lane
  std::vector<HostDecode> decodes_;       // the same
  std::array<LanesUnderWay, 2> ways_;     // with tokens of the first lane moved, and as they are
  Lanes under_way_{};                     // tokens that did not get through their last step
  double advanced_ = 0;             // of these, the share that is done: stage / (layers + 1) each
  std::optional<HostWaits> waits_;  // apex_plus
};

}  // namespace tandem
