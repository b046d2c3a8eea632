// Looks at every plan of the omniserve policy and every verdict of its admission, and compares them
// with what scheduler/policies/omniserve.h and scheduler/slo_admission.h promise. What is broken is
// written down; nothing is changed.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "plan/admission.h"
#include "plan/decisions.h"
#include "scheduler/chunk_replay.h"
#include "scheduler/first_tokens.h"
#include "scheduler/margins.h"

namespace tandem::testing {

struct GuaranteeFindings {
  static constexpr size_t kKept = 5;
  std::vector<std::string> broken;  // the first ones
  int64_t count = 0;
  int64_t steps = 0;
  int64_t verdicts = 0;
  int64_t longest_decode_gap = 0;  // of best effort, in steps
  int64_t longest_prompt_gap = 0;
  int64_t most_begun = 0;  // best-effort prompts at a time

  template <class... Args>
  void note(fmt::format_string<Args...> text, Args&&... args) {
    ++count;
    if (broken.size() < kKept) {
      broken.push_back(fmt::format(text, std::forward<Args>(args)...));
    }
  }
};

class PolicyWatch final : public StepPolicy {
 public:
  PolicyWatch(StepPolicy& inner, int32_t patience_steps, GuaranteeFindings& found)
      : inner_(inner), patience_(patience_steps), found_(found) {}
  [[nodiscard]] std::string_view name() const override { return inner_.name(); }
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override {
    return inner_.make_queue_order();
  }
  [[nodiscard]] bool reads_stages() const override { return inner_.reads_stages(); }

  StepPlan plan(const SystemView& view) override {
    StepPlan plan = inner_.plan(view);
    ++found_.steps;
    tokens_.clear();
    gone_.clear();
    for (const StepPlan::Slice& slice : plan.slices) {
      tokens_[slice.sequence] = slice.tokens;
    }
    gone_.insert(plan.preempt.begin(), plan.preempt.end());
    gone_.insert(plan.offload.begin(), plan.offload.end());
    places_ = view.budget.sequences;
    for (const SequenceView& one : view.running) {
      places_ += one.choices;
    }
    // Each running sequence could take a block and copy one, and prompts their next tokens.
    roomy_ = view.budget.free_blocks >=
             2 * std::ssize(view.running) + view.budget.tokens / view.budget.block_tokens + 1;
    wide_ = view.budget.tokens - view.budget.tokens / kVisitorShareOfTokens >=
            places_ + 2 * kTileTokens;
    look_at_latency_sensitive(view);
    look_at_decodes(view);
    look_at_prompts(view, plan);
    look_at_claim(view, plan);
    return plan;
  }

 private:
  [[nodiscard]] int32_t tokens_of(SequenceId id) const {
    const auto found = tokens_.find(id);
    return found == tokens_.end() ? 0 : found->second;
  }

  void look_at_latency_sensitive(const SystemView& view) {
    const SequenceView* prompt = nullptr;
    for (const SequenceView& one : view.running) {
      if (one.service_class != ServiceClass::kLatencySensitive || gone_.contains(one.id)) {
        continue;
      }
      if (one.decodes()) {
        if (roomy_ && view.budget.tokens >= places_ && tokens_of(one.id) == 0) {
          found_.note("step {}: latency-sensitive decode {} has no part", view.step, raw(one.id));
        }
      } else if (prompt == nullptr || one.level < prompt->level) {
        prompt = &one;
      }
    }
    if (prompt != nullptr && roomy_ && wide_ &&
        tokens_of(prompt->id) < std::min(kTileTokens, prompt->pending_tokens())) {
      found_.note("step {}: the first latency-sensitive prompt gets {} tokens", view.step,
                  tokens_of(prompt->id));
    }
  }

  void look_at_decodes(const SystemView& view) {
    std::map<SequenceId, int64_t> waiting;
    for (const SequenceView& one : view.running) {
      if (one.service_class != ServiceClass::kBestEffort || !one.decodes() ||
          tokens_of(one.id) > 0 || gone_.contains(one.id)) {
        continue;
      }
      const auto since = decodes_.find(one.id);
      const int64_t first = since == decodes_.end() ? view.step : since->second;
      waiting.emplace(one.id, first);
      if (roomy_ && view.budget.tokens >= places_) {
        found_.longest_decode_gap = std::max(found_.longest_decode_gap, view.step - first + 1);
        if (view.step - first >= patience_) {
          found_.note("step {}: best-effort decode {} waits since step {}", view.step, raw(one.id),
                      first);
        }
      }
    }
    decodes_ = std::move(waiting);
  }

  void look_at_prompts(const SystemView& view, const StepPlan& plan) {
    int64_t begun = 0;  // unfinished after this step
    bool any = false;
    bool served = false;
    for (const SequenceView& one : view.running) {
      if (one.service_class == ServiceClass::kBestEffort && !one.decodes() &&
          !gone_.contains(one.id)) {
        any = true;
        served = served || tokens_of(one.id) > 0;
        begun += tokens_of(one.id) < one.pending_tokens() ? 1 : 0;
      }
    }
    const SequenceView* head = nullptr;
    const bool promised_waits = promised_line(view) > 0;
    for (const SequenceView& one : view.waiting) {
      if (one.service_class != ServiceClass::kBestEffort) {
        continue;
      }
      head = head == nullptr ? &one : head;
      served = served || tokens_of(one.id) > 0;
      begun += tokens_of(one.id) > 0 && tokens_of(one.id) < one.pending_tokens() ? 1 : 0;
    }
    found_.most_begun = std::max(found_.most_begun, begun);
    if (begun > 1) {
      found_.note("step {}: {} best-effort prompts have begun", view.step, begun);
    }
    const bool head_fits = head != nullptr && !promised_waits && plan.preempt.empty() &&
                           head->choices <= view.budget.sequences &&
                           head->choices <= places_for_head(view) && fits(view, *head);
    const bool could = roomy_ && wide_ && (any || head_fits);
    prompt_gap_ = served || !could ? 0 : prompt_gap_ + 1;
    found_.longest_prompt_gap = std::max(found_.longest_prompt_gap, prompt_gap_);
    if (prompt_gap_ > patience_) {
      found_.note("step {}: no best-effort prompt gets tokens for {} steps ({})", view.step,
                  prompt_gap_, any ? "one has begun" : "the first in the queue could begin");
    }
    if (served || any || head == nullptr) {
      overdue_since_ = -1;
    } else if (overdue_since_ < 0) {
      overdue_since_ = view.step;
    }
  }

  // Beside all that run and go on to their ends, and what they may take in this step.
  static bool fits(const SystemView& view, const SequenceView& head) {
    const auto blocks_for = [&](int64_t tokens) {
      return (tokens + view.budget.block_tokens - 1) / view.budget.block_tokens;
    };
    int64_t needed = blocks_for(head.known_tokens + 1) + head.cached_free_blocks;
    for (const SequenceView& one : view.running) {
      needed += 2 + std::max<int64_t>(blocks_for(one.known_tokens) - one.held_blocks, 0);
    }
    for (const SequenceView& one : view.offloaded) {
      needed += one.service_class == ServiceClass::kLatencySensitive
                    ? std::max<int64_t>(one.transfer_blocks, blocks_for(one.known_tokens))
                    : 0;
    }
    for (const SequenceView& one : view.waiting) {
      needed += one.service_class == ServiceClass::kLatencySensitive
                    ? blocks_for(one.known_tokens + 1) + one.cached_free_blocks
                    : 0;
    }
    int64_t held = 0;
    for (const SequenceView& sequence : view.running) {
      held += sequence.service_class == ServiceClass::kBestEffort ? sequence.own_blocks : 0;
    }
    return needed <= view.budget.free_blocks &&
           blocks_for(head.known_tokens + 1) <= view.budget.total_blocks / 4 - held;
  }

  // With the best effort that runs it may have a quarter of all places, and none once that best
  // effort has a quarter of all blocks.
  [[nodiscard]] int32_t places_for_head(const SystemView& view) const {
    int32_t held = 0;
    int64_t held_blocks = 0;
    for (const SequenceView& sequence : view.running) {
      if (sequence.service_class == ServiceClass::kBestEffort) {
        held += sequence.choices;
        held_blocks += sequence.own_blocks;
      }
    }
    return held_blocks >= view.budget.total_blocks / 4
               ? 0
               : std::max(std::max(places_ / 4, 1) - held, 0);
  }

  // Who has not begun leaves the overdue head its places.
  void look_at_claim(const SystemView& view, const StepPlan& plan) {
    if (overdue_since_ < 0 || view.step - overdue_since_ < patience_) {
      return;
    }
    const auto head =
        std::ranges::find(view.waiting, ServiceClass::kBestEffort, &SequenceView::service_class);
    if (head == view.waiting.end()) {
      return;
    }
    const int32_t claim = std::min(head->choices, places_for_head(view));
    int32_t left = view.budget.sequences;
    const size_t promised = promised_line(view);
    for (size_t i = 0; i < view.waiting.size(); ++i) {
      const SequenceView& one = view.waiting[i];
      if (std::ranges::find(plan.admit, one.id) == plan.admit.end()) {
        continue;
      }
      left -= one.choices;
      if (one.service_class == ServiceClass::kLatencySensitive && i >= promised && left < claim) {
        found_.note("step {}: a latency-sensitive request leaves the overdue head {} places",
                    view.step, left);
      }
    }
  }

  StepPolicy& inner_;
  const int32_t patience_;
  GuaranteeFindings& found_;
  std::map<SequenceId, int32_t> tokens_;
  std::set<SequenceId> gone_;
  std::map<SequenceId, int64_t> decodes_;  // without a part, and since when
  int64_t prompt_gap_ = 0;
  int64_t overdue_since_ = -1;  // the head waits with none before it
  int32_t places_ = 0;
  bool roomy_ = false;
  bool wide_ = false;
};

class AdmissionWatch final : public Admission {
 public:
  AdmissionWatch(Admission& inner, GuaranteeFindings& found) : inner_(inner), found_(found) {}

  AdmissionVerdict decide(const AdmissionView& view, const AdmissionAsk& ask) override {
    const AdmissionVerdict verdict = inner_.decide(view, ask);
    ++found_.verdicts;
    if (verdict.answer == AdmissionAnswer::kRefuse) {
      look_at_refusal(view, ask, verdict);
    }
    // Whoever asks in between.
    AdmissionAsk other = ask;
    other.tpot = ask.tpot == Nanos::max() ? std::chrono::milliseconds(20) : ask.tpot / 2;
    other.prompt_tokens += 100;
    inner_.decide(view, other);
    const AdmissionVerdict again = inner_.decide(view, ask);
    if (again.answer != verdict.answer || again.reason != verdict.reason ||
        again.ttft != verdict.ttft || again.retry_after != verdict.retry_after) {
      found_.note("the same ask of the same view is answered differently after another");
    }
    return verdict;
  }
  void ended(int32_t output_tokens) override { inner_.ended(output_tokens); }

 private:
  void look_at_refusal(const AdmissionView& view, const AdmissionAsk& ask,
                       const AdmissionVerdict& verdict) {
    const bool never = verdict.reason == RefusalReason::kNeverFirstToken ||
                       verdict.reason == RefusalReason::kNeverTokenTime;
    if (never == verdict.retry_after.has_value() || verdict.reason == RefusalReason::kNone) {
      found_.note("a refusal ({}) with{} a retry time", reason_name(verdict.reason),
                  verdict.retry_after.has_value() ? "" : "out");
    }
    if (verdict.retry_after.has_value() && (*verdict.retry_after < std::chrono::milliseconds(1) ||
                                            *verdict.retry_after > std::chrono::minutes(10))) {
      found_.note("a retry time of {} ns", verdict.retry_after->count());
    }
    const bool idle = view.decodes.empty() && view.prompts.empty() && !view.step_began &&
                      view.best_effort_decodes == 0 && view.best_effort_prompts == 0 &&
                      view.offloaded == 0 && view.now == ask.arrived;
    if (idle && !never) {
      found_.note("an idle server refuses for {}", reason_name(verdict.reason));
    }
    int64_t sequences = std::ssize(view.decodes) + ask.choices;
    for (const AdmittedPrompt& prompt : view.prompts) {
      sequences += prompt.rest.choices;
    }
    if (verdict.reason == RefusalReason::kPlaces &&
        sequences <=
            std::min(view.places - std::max(view.places / 4, 1), view.step_tokens - kTileTokens)) {
      found_.note("refused for its place as number {} of {}", sequences, view.places);
    }
  }

  Admission& inner_;
  GuaranteeFindings& found_;
};

}  // namespace tandem::testing
