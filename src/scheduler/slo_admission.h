// Admission by the model of time (OmniServe 3.3.3, where a closed form over the
// whole queue stands for the replay). An LS request is let in where, by forecast,
//
//   1. its first token comes in time, and so do those of all that were let in before,
//   2. no step that LS sequences are part of is longer than the least TPOT target among them, now
//      and when all of them have grown to the length that answers have here,
//   3. their KV and their number fit the pool and the places, less the right of best effort that
//   has
//      waited too long, or answers that end leave the missing room before the target of the first
//      token. A request without such a target, or before others in the line, must fit at once.
//
// The first is found by replaying the chunks that the omniserve policy will cut, unless a closed
// form, a lower bound of what the replay would find, shows that it is out of reach. What best
// effort may claim whatever the time is reckoned with; the rest of best effort gets only time that
// no promise needs, so it is not. A tenth of each TTFT target is kept for errors of the model
// (planned_due). Where no request has targets all are accepted.
//
// A verdict depends on the view, the ask and the lengths of earlier answers, not on what was asked
// before. On an idle server a refusal is final: it has no retry time.
//
// An answer is as good as the model: what it gets wrong shows in a first token that comes late.
//
// Threads: as Admission. The model's const functions are called; what it learns meanwhile moves the
// answers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "latency/step_time_model.h"
#include "plan/admission.h"
#include "scheduler/chunk_replay.h"
#include "scheduler/output_lengths.h"
#include "scheduler/slack_binder.h"

namespace tandem {

// The right of the first best-effort request in the queue, once it has waited too long: the blocks
// and places that it needs to begin. This claim and the running best-effort requests (`held`) have
// at most a quarter of all blocks and places, so that best effort does not keep the other class
// out. A larger request waits until its blocks and places are free without a claim.
struct OverdueHead {
  int64_t blocks = 0;
  int32_t places = 0;
};
inline constexpr int32_t kShareForHead = 4;
constexpr OverdueHead claim_of_head(OverdueHead needs, OverdueHead held, OverdueHead total) {
  const int64_t blocks = total.blocks / kShareForHead - held.blocks;
  const int32_t places = std::max(total.places / kShareForHead, 1) - held.places;
  return blocks <= 0 || places <= 0 ? OverdueHead{}
                                    : OverdueHead{.blocks = std::min(needs.blocks, blocks),
                                                  .places = std::min(needs.places, places)};
}

struct AdmissionRules {
  int32_t token_budget = 512;  // of a step while no target limits it
  int32_t patience_steps = 64;
};

class SloAdmission final : public Admission {
 public:
  // All must outlive it. `forecast` and `head` are read when somebody asks.
  SloAdmission(const AdmissionRules& rules, const latency::StepTimeModel& model,
               const StepForecast& forecast, const OverdueHead& head);

  AdmissionVerdict decide(const AdmissionView& view, const AdmissionAsk& ask) override;
  void ended(int32_t output_tokens) override { lengths_.observe(output_tokens); }

 private:
  // Of all that were let in: sums over a view, kept while it goes on.
  struct Sums {
    int64_t version = -1;
    size_t prompts = 0;          // of the view that are counted
    latency::StepShape decodes;  // now
    latency::StepShape grown;    // all of them, as long as they will be
    double growth_tokens = 0;    // that they will still get
    double growth_variance = 0;
    double most_growth = 0;
    int64_t held_blocks = 0;
    int64_t blocks_to_begin = 0;  // that prompts lack
    int64_t pending_tokens = 0;
    int64_t longest_prompt = 0;
    int64_t sequences = 0;
    int64_t waiting_sequences = 0;  // of these, without a place
    bool any_due = false;
  };
  // The line of prompts as it is, walked.
  struct Line {
    int64_t version = -1;
    size_t prompts = 0;
    Nanos limit{0};
    int32_t step_tokens = 0;
    Nanos start{0};  // of its first step
    std::optional<PromptReplay> replay;
  };
  struct Limits {
    Nanos tpot = Nanos::max();  // least of all and the ask
    Nanos step = Nanos::max();  // of a step with prompts
    int32_t step_tokens = 0;
    ForcedShare forced;
    Nanos before{0};
  };

  void count(const AdmissionView& view);
  void count_growth(int32_t known_tokens, int32_t output_tokens, int32_t max_tokens,
                    int32_t choices, Sums& sums) const;
  [[nodiscard]] ForcedWork forced_work(const AdmissionView& view) const;
  [[nodiscard]] Limits limits_for(const AdmissionView& view, const AdmissionAsk& ask) const;
  void limit_steps(const AdmissionView& view, Nanos tpot, Limits& limits) const;
  [[nodiscard]] Nanos step_rest(const AdmissionView& view) const;
  [[nodiscard]] ReplayRules rules_for(const Limits& limits) const;

  [[nodiscard]] int64_t missing_places(const AdmissionView& view, const AdmissionAsk& ask) const;
  [[nodiscard]] int64_t missing_blocks(const AdmissionView& view, const AdmissionAsk& ask) const;
  [[nodiscard]] Nanos grown_step(const AdmissionView& view, const AdmissionAsk& ask) const;
  [[nodiscard]] Nanos soonest_first_token(const AdmissionView& view, const AdmissionAsk& ask,
                                          const Limits& limits) const;
  struct Walked {
    Nanos first_token{0};  // of the ask, from the view's now
    Nanos late{0};         // the others, all together
    Nanos late_until{0};   // when the last of these has its first token, from the view's now
    Nanos longest{0};
  };
  [[nodiscard]] PromptReplay walk_line(const AdmissionView& view, const Limits& limits) const;
  const PromptReplay& line_of(const AdmissionView& view, const Limits& limits);
  Walked walk(const AdmissionView& view, const AdmissionAsk& ask, const Limits& limits);
  [[nodiscard]] Nanos late_without(const AdmissionView& view, const AdmissionAsk& ask,
                                   const Limits& limits);

  // A refusal: whether waiting would help, and how long.
  AdmissionVerdict refuse(const AdmissionView& view, const AdmissionAsk& ask,
                          AdmissionVerdict verdict, Nanos others_late_until = Nanos{0});
  [[nodiscard]] Nanos time_until(const AdmissionView& view, const AdmissionAsk& ask,
                                 const AdmissionVerdict& verdict) const;
  // What an idle server would give it.
  struct Alone {
    Nanos first_token{0};
    Nanos step_time{0};  // of its last tokens
  };
  [[nodiscard]] Alone alone(const AdmissionView& view, const AdmissionAsk& ask) const;
  struct Freed {
    double steps = 0;     // until the last of the running answers that are needed has ended
    bool enough = false;  // false: all running answers together free too little
  };
  // `deviations`: standard deviations by which answers are taken to be longer than the mean.
  [[nodiscard]] Freed steps_until_freed(const AdmissionView& view, int64_t blocks, int64_t places,
                                        double deviations) const;
  [[nodiscard]] Nanos until_freed(const AdmissionView& view, int64_t blocks, int64_t places) const;
  // The same at the pace of steps that prompts fill; kNone: running answers free too little.
  [[nodiscard]] Nanos wait_for_room(const AdmissionView& view, const Limits& limits, int64_t blocks,
                                    int64_t places) const;

  const AdmissionRules rules_;
  const latency::StepTimeModel& model_;
  const StepForecast& forecast_;
  const OverdueHead& head_;
  OutputLengths lengths_;
  Sums sums_;
  Line line_;
};

}  // namespace tandem
