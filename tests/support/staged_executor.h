// An executor in virtual time that runs steps stage by stage, as StepRun does: groups are launched
// ahead of the accelerator by the same rule (exec/group_queue.h), a binder chooses the visitors of
// each, and the accelerator takes exactly what a model of time says. Hops of visitors go through
// one host that serves them in order. It computes nothing: every token is the same.
//
// A step is simulated when it is launched, because nothing from outside changes it.
#pragma once

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "exec/group_queue.h"
#include "latency/modular_model.h"
#include "plan/decisions.h"
#include "plan/step.h"

namespace tandem::testing {

struct StagedOptions {
  ExecutorLimits limits;
  latency::SimpleCosts costs;
  int32_t group_stages = 4;
  Nanos copy{std::chrono::microseconds(50)};         // of a hop's rows, each way
  Nanos host_service{std::chrono::microseconds(2)};  // of a hop at the host
  Nanos block_copy{std::chrono::microseconds(20)};   // of a KV block between the tiers
  Nanos host_period{0};  // results come back at multiples of it; 0: at once
  // Whether binders see what is launched and not complete.
  enum class Launched : uint8_t { kShown, kHidden } launched = Launched::kShown;
};

struct StagedStep {
  latency::StepShape shape;  // without visitors
  Nanos took{0};
  int64_t visits = 0;
};

class StagedExecutor final : public StepExecutor {
 public:
  StagedExecutor(const StagedOptions& options, const Clock& clock, Binder& binder)
      : options_(options),
        clock_(clock),
        binder_(binder),
        model_(latency::simple_model(options.costs)),
        last_stage_(options.costs.layers) {}

  [[nodiscard]] const ExecutorLimits& limits() const override { return options_.limits; }

  void launch(const StepInput& input) override {
    CHECK(!running_, "step {} is launched while another runs", input.step);
    running_ = true;
    result_ = {.step = input.step, .samples = {}, .scored = {}, .visitors = {}};
    shape_ = {};
    for (const StepSlice& slice : input.slices) {
      add(slice);
    }
    const Nanos now = clock_.now();
    for (const TierTransfer& transfer : input.transfers) {
      ends_.emplace(now + options_.block_copy * std::ssize(transfer.blocks), transfer.id);
      offloads_ += transfer.kind == TransferKind::kOffload ? 1 : 0;
    }
    for (const OffloadedToken& token : input.entering) {
      tokens_.push_back({.sequence = token.sequence, .stage = 0, .ready = now});
      ++entered_[token.sequence];
    }
    visits_ = 0;
    ready_at_ = shape_.rows() > 0 ? run_groups(now) : run_visitors(now);
    steps_.push_back({.shape = shape_, .took = ready_at_ - now, .visits = visits_});
  }

  bool poll(StepResult& result) override {
    if (!running_ || clock_.now() < ready_at_) {
      return false;
    }
    running_ = false;
    result = std::move(result_);
    return true;
  }

  void leave(SequenceId offloaded) override {
    std::erase_if(tokens_, [&](const Token& token) { return token.sequence == offloaded; });
    left_.push_back(offloaded);
  }

  [[nodiscard]] int32_t next_stage(SequenceId offloaded) const override {
    const auto token = std::ranges::find(tokens_, offloaded, &Token::sequence);
    return token == tokens_.end() ? -1 : token->stage;
  }

  TierEvents take_tier_events() override {
    TierEvents events;
    events.left = std::exchange(left_, {});
    while (!ends_.empty() && ends_.begin()->first <= clock_.now()) {
      events.transfers_done.push_back(ends_.begin()->second);
      ends_.erase(ends_.begin());
    }
    return events;
  }

  // The engine looks at the tiers between steps only.
  [[nodiscard]] Nanos next_event() const {
    if (running_) {
      return ready_at_;
    }
    CHECK(!left_.empty() || !ends_.empty(), "nothing is in flight");
    return left_.empty() ? ends_.begin()->first : clock_.now();
  }
  [[nodiscard]] const std::vector<StagedStep>& steps() const { return steps_; }
  [[nodiscard]] int64_t offloads() const { return offloads_; }
  // Tokens that were computed on the host, of all sequences.
  [[nodiscard]] int64_t entered() const {
    int64_t sum = 0;
    for (const auto& [sequence, count] : entered_) {
      sum += count;
    }
    return sum;
  }

 private:
  struct Token {
    SequenceId sequence{};
    int32_t stage = 0;
    Nanos ready{0};  // when it can join `stage`
  };

  void add(const StepSlice& slice) {
    const auto rows = static_cast<int32_t>(slice.tokens.size());
    if (rows == 1 && slice.samples.size() == 1) {
      shape_.add_decode(slice.first_position + 1);
    } else {
      shape_.add_prefill(slice.first_position, rows, static_cast<int32_t>(slice.samples.size()));
    }
    for (const SampleSpec& spec : slice.samples) {
      result_.samples.push_back({spec.sequence, 7, nullptr});
    }
  }

  [[nodiscard]] Nanos stage_time(int32_t stage) const {
    const Nanos end = stage == last_stage_ ? model_.step_time(shape_)
                                           : model_.time_before_stage(shape_, stage + 1);
    return end - model_.time_before_stage(shape_, stage);
  }
  [[nodiscard]] latency::StageRows rows_at(int32_t stage) const {
    return {stage, stage == last_stage_ ? int64_t{shape_.logit_rows} : shape_.rows()};
  }
  [[nodiscard]] int32_t ready(int32_t stage, Nanos at) const {
    return static_cast<int32_t>(std::ranges::count_if(
        tokens_, [&](const Token& token) { return token.stage == stage && token.ready <= at; }));
  }

  // `count` tokens that are ready at `stage` join it and are through at `end`.
  void visit(int32_t stage, int32_t count, Nanos at, Nanos end) {
    for (Token& token : tokens_) {
      if (count == 0) {
        break;
      }
      if (token.stage != stage || token.ready > at) {
        continue;
      }
      --count;
      ++visits_;
      ++token.stage;
      if (stage == last_stage_) {
        result_.visitors.push_back({token.sequence, 7, nullptr});
        continue;
      }
      host_free_ = std::max(host_free_, end + options_.copy) + options_.host_service;
      token.ready = host_free_ + options_.copy;
      if (options_.host_period > Nanos{0}) {
        token.ready = (token.ready / options_.host_period + 1) * options_.host_period;
      }
    }
    std::erase_if(tokens_, [&](const Token& token) { return token.stage > last_stage_; });
  }

  Nanos run_groups(Nanos now) {
    GroupQueue queue;
    std::deque<Nanos> group_ends;
    Nanos device_free = now + model_.time_before_stage(shape_, 0);
    Nanos at = now;
    for (int32_t first = 0; first <= last_stage_;) {
      while (!queue.may_launch(options_.group_stages)) {
        at = std::max(at, group_ends.front());
        queue.pop(group_ends.front());
        group_ends.pop_front();
      }
      const int32_t end = std::min(first + options_.group_stages, last_stage_ + 1);
      const BindDecision decision = bind(queue, at, first, end);
      device_free = std::max(device_free, at);
      for (int32_t stage = first; stage < end; ++stage) {
        const int32_t joining = decision.visitors[static_cast<size_t>(stage - first)];
        device_free += stage_time(stage) + model_.visit_time(rows_at(stage), joining);
        visit(stage, joining, at, device_free);
      }
      queue.push({.step = result_.step, .launched = at, .stages = {first, end}});
      group_ends.push_back(device_free);
      first = end;
    }
    return device_free;
  }

  BindDecision bind(GroupQueue& queue, Nanos at, int32_t first, int32_t end) {
    std::vector<int32_t> ready_rows;
    for (int32_t stage = first; stage < end; ++stage) {
      ready_rows.push_back(ready(stage, at));
      result_.ready = std::max<int64_t>(result_.ready, 0) + ready_rows.back();
    }
    const std::vector<int32_t> plenty(ready_rows.size(), 1 << 20);
    const std::vector<int32_t> none(ready_rows.size(), 0);
    BindView view{
        .now = at,
        .step = result_.step,
        .first_stage = first,
        .last_stage = last_stage_,
        .resident_rows = static_cast<int32_t>(shape_.rows()),
        .row_room = options_.limits.max_batched_tokens - static_cast<int32_t>(shape_.rows()),
        .logit_room = options_.limits.max_logit_rows - shape_.logit_rows,
        .ready = ready_rows,
        .coming = none,
        .credits = plenty};
    if (options_.launched == StagedOptions::Launched::kShown) {
      queue.show(view);
    }
    BindDecision decision;
    binder_.bind(view, decision);
    return decision;
  }

  // Nothing resident: the step waits for the first token that can join its stage, or for a copy.
  Nanos run_visitors(Nanos now) {
    Nanos at = Nanos::max();
    for (const Token& token : tokens_) {
      at = std::min(at, std::max(now, token.ready));
    }
    if (at == Nanos::max()) {
      return now;
    }
    if (!ends_.empty() && ends_.begin()->first < at) {
      return std::max(now, ends_.begin()->first);
    }
    Nanos end = at;
    for (int32_t stage = 0; stage <= last_stage_; ++stage) {
      const int32_t joining = ready(stage, at);
      end += model_.visit_time(rows_at(stage), joining);
      visit(stage, joining, at, end);
    }
    return end;
  }

  const StagedOptions options_;
  const Clock& clock_;
  Binder& binder_;
  const latency::ModularModel model_;
  const int32_t last_stage_;
  bool running_ = false;
  StepResult result_;
  latency::StepShape shape_;
  Nanos ready_at_{0};
  int64_t visits_ = 0;  // of this step
  std::vector<Token> tokens_;
  Nanos host_free_{0};
  std::multimap<Nanos, int64_t> ends_;  // of transfers
  std::vector<SequenceId> left_;
  std::map<SequenceId, int64_t> entered_;
  int64_t offloads_ = 0;
  std::vector<StagedStep> steps_;
};

}  // namespace tandem::testing
