#include "node/tier_meter.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {
namespace {

using latency::HostLimits;
using latency::LinkWay;
using latency::TierSteps;

// Steps until the visitors are spread over the stages, and then as many as the time holds, so that
// there are visits to speak of also where steps are shorter than a hop.
constexpr int32_t kSettling = 6;
constexpr int32_t kLeastSteps = 16;
constexpr Nanos kLeastTime = std::chrono::milliseconds(100);
constexpr TokenId kToken{1};

// Visitors are told apart from residents by their ids.
SequenceId visitor(int32_t index) { return SequenceId{1'000'000 + index}; }

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double nanos(Nanos time) { return static_cast<double>(time.count()); }

}  // namespace

TierMeter::TierMeter(const Options& options, ForwardExecutor& executor, Bell& bell,
                     const Clock& clock)
    : options_(options),
      executor_(executor),
      bell_(bell),
      clock_(clock),
      position_(std::min(executor.limits().block_tokens, options.max_model_len) - 1) {
  sampling_.temperature = 0;
  const ExecutorLimits& limits = executor.limits();
  const int64_t most = std::max<int64_t>(limits.max_logit_rows, limits.offloaded_sequences);
  for (int64_t i = 0; i < most; ++i) {
    blocks_.push_back(static_cast<BlockId>(i));
  }
}

HostLimits TierMeter::limits() const {
  const ExecutorLimits& limits = executor_.limits();
  const HostProbeLimits probe = executor_.probe_limits();
  // Half of the rows and logits are the residents', half the visitors'.
  const int32_t rows = std::min(limits.max_logit_rows, limits.max_batched_tokens) / 2;
  return {.rows = std::min(probe.rows, limits.offloaded_sequences),
          .context = std::min(probe.context, options_.max_model_len),
          .tokens = probe.tokens,
          .copy_bytes = probe.copy_bytes,
          .residents = static_cast<int32_t>(std::min<int64_t>(rows, limits.total_blocks)),
          .visitors = static_cast<int32_t>(
              std::min<int64_t>({rows, limits.host_blocks, limits.offloaded_sequences}))};
}

Result<latency::HostAttended> TierMeter::attention(int32_t rows, int32_t context) {
  const TierCounts before = executor_.tier_counts();
  ASSIGN_OR_RETURN(const Nanos took, executor_.time_host_attention(rows, context));
  const TierCounts after = executor_.tier_counts();
  return latency::HostAttended{
      .took = took,
      .busy = (after.attention_time - before.attention_time) / std::max(after.workers, 1)};
}

Result<Nanos> TierMeter::copy(LinkWay way, int64_t bytes) {
  return executor_.time_link(
      way == LinkWay::kToHost ? TransferKind::kOffload : TransferKind::kOnload, bytes);
}

SampleSpec TierMeter::sample_of(SequenceId sequence) const {
  return {.sequence = sequence, .params = &sampling_, .seed = 1, .position = position_ + 1};
}

void TierMeter::add_residents(int32_t residents, StepInput& input) {
  specs_.clear();
  specs_.reserve(static_cast<size_t>(residents));
  for (int32_t i = 0; i < residents; ++i) {
    const SequenceId id{i + 1};
    specs_.push_back(sample_of(id));
    input.slices.push_back({.sequence = id,
                            .tokens = std::span(&kToken, 1),
                            .first_position = position_,
                            .block_table = std::span(blocks_).subspan(static_cast<size_t>(i), 1),
                            .samples = std::span<const SampleSpec>(&specs_.back(), 1)});
  }
}

TierMeter::Timed TierMeter::run(const StepInput& input) {
  Timed timed;
  const Nanos began = clock_.now();
  executor_.launch(input);
  Nanos now = clock_.now();
  timed.engine_nanos = nanos(now - began);
  StepResult result;
  while (true) {
    const Nanos polled = clock_.now();
    const bool done = executor_.poll(result);
    now = clock_.now();
    timed.engine_nanos += nanos(now - polled);
    if (done || executor_.failure() != nullptr) {
      break;
    }
    wait();
  }
  timed.step_nanos = nanos(now - began);
  for (const SampledToken& sampled : result.visitors) {
    between_.push_back(sampled.sequence);
  }
  return timed;
}

// Until something is reported, or until the executor is to look for workers that hang.
void TierMeter::wait() {
  const Nanos now = clock_.now();
  bell_.wait_for(executor_.next_check(now) - now);
}

void TierMeter::leave_all(int32_t visitors) {
  for (int32_t i = 0; i < visitors; ++i) {
    executor_.leave(visitor(i));
  }
  for (int32_t left = 0; left < visitors;) {
    const TierEvents events = executor_.take_tier_events();
    left += static_cast<int32_t>(events.left.size() + events.failed.size());
    if (left < visitors && events.left.empty() && events.failed.empty()) {
      wait();
    }
  }
  between_.clear();
}

Result<TierSteps> TierMeter::time_steps(StepMode mode, int32_t residents, int32_t visitors) {
  const HostLimits most = limits();
  CHECK(residents > 0 && residents <= most.residents && visitors >= 0 && visitors <= most.visitors,
        "{} residents and {} visitors", residents, visitors);
  for (int32_t i = 0; i < visitors; ++i) {
    between_.push_back(visitor(i));
  }
  std::vector<double> step;
  std::vector<double> engine;
  TierCounts before;
  Nanos began{0};
  for (int32_t i = 0; i < kSettling + kLeastSteps || clock_.now() - began < kLeastTime; ++i) {
    if (i == kSettling) {
      before = executor_.tier_counts();
      began = clock_.now();
    }
    StepInput input;
    input.step = next_step_++;
    input.mode = mode;
    add_residents(residents, input);
    for (const SequenceId id : between_) {
      const auto index = static_cast<size_t>(raw(id) - raw(visitor(0)));
      input.entering.push_back({.sequence = id,
                                .token = kToken,
                                .position = position_,
                                .host_table = std::span(blocks_).subspan(index, 1),
                                .sample = sample_of(id)});
    }
    between_.clear();
    const Timed timed = run(input);
    if (const Error* failure = executor_.failure()) {
      return *failure;
    }
    const TierEvents events = executor_.take_tier_events();
    if (!events.failed.empty()) {
      return Error{ErrorCode::kInternal, "the host's workers failed while they were measured", ""};
    }
    if (i >= kSettling) {
      step.push_back(timed.step_nanos);
      engine.push_back(timed.engine_nanos);
    }
  }
  const TierCounts after = executor_.tier_counts();
  leave_all(visitors);
  const auto hops = static_cast<double>(after.hops - before.hops);
  const auto of_a_hop = [hops](int64_t bytes) {
    return hops > 0 ? static_cast<double>(bytes) / hops : 0;
  };
  const int32_t group_stages = mode == StepMode::kLanes ? 1 : options_.group_stages;
  return TierSteps{.step_nanos = median_of(step),
                   .engine_nanos = median_of(engine),
                   .visits = hops / static_cast<double>(step.size()),
                   .resident_context = static_cast<double>(residents) * (position_ + 1),
                   .groups = static_cast<double>((options_.layers + group_stages) / group_stages),
                   .hop = {.to_host = of_a_hop(after.bytes_to_host - before.bytes_to_host),
                           .from_host = of_a_hop(after.bytes_from_host - before.bytes_from_host)}};
}

}  // namespace tandem
