#include "exec/step_sampling.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "exec/batch_sections.h"
#include "exec/workspaces.h"

namespace tandem {
namespace {

using device::CopyOp;
using device::MemoryKind;

constexpr auto kResultBytes = static_cast<int64_t>(sizeof(kernels::SampleResult));

LogprobInfo logprobs_of(const kernels::SampleResult& result) {
  LogprobInfo info{.logprob = result.logprob, .rank = result.rank, .top = {}};
  info.top.reserve(static_cast<size_t>(result.top_count));
  for (int32_t i = 0; i < result.top_count; ++i) {
    info.top.push_back({.token = result.top_tokens[i], .logprob = result.top_logprobs[i]});
  }
  return info;
}

// Tokens of `rows` rows, as far as the results that stand behind them.
int64_t token_bytes(int64_t rows) { return section_bytes<int32_t>(rows); }

}  // namespace

int64_t StepSampling::result_bytes(int64_t rows) { return token_bytes(rows) + rows * kResultBytes; }

StepSampling::Results StepSampling::results_in(const device::Memory& memory) const {
  return {reinterpret_cast<int32_t*>(memory.data()),
          reinterpret_cast<kernels::SampleResult*>(memory.data() +
                                                   token_bytes(limits_.max_logit_rows))};
}

int64_t StepSampling::score_bytes(int64_t tokens) { return tokens * kResultBytes; }

Status StepSampling::allocate(const WorkspaceSizes& sizes) {
  device::Device& device = place_.device;
  ASSIGN_OR_RETURN(logits_, device.allocate(MemoryKind::kDevice, sizes.logits));
  ASSIGN_OR_RETURN(device_results_, device.allocate(MemoryKind::kDevice, sizes.device_results));
  ASSIGN_OR_RETURN(host_results_, device.allocate(MemoryKind::kHostPinned, sizes.host_results));
  ASSIGN_OR_RETURN(host_scored_, device.allocate(MemoryKind::kHostPinned, sizes.host_scores));
  if (place_.keep_logits) {
    ASSIGN_OR_RETURN(host_logits_, device.allocate(MemoryKind::kHostPinned, sizes.logits));
  }
  pending_.reserve(static_cast<size_t>(limits_.max_logit_rows));
  return {};
}

void StepSampling::begin(const StepInput& input) {
  pending_.clear();
  logprobs_asked_ = false;
  draws_ = false;
  for (const StepSlice& slice : input.slices) {
    for (const SampleSpec& spec : slice.samples) {
      add(spec);
    }
  }
  residents_ = pending_.size();
  launched_ = 0;
  scored_count_ = 0;
  logits_copied_ = false;
}

void StepSampling::add(const SampleSpec& spec) {
  const bool logprobs = spec.params->logprobs >= 0;
  Pending& pending = pending_.emplace_back();
  pending.sequence = spec.sequence;
  pending.logprobs = logprobs;
  logprobs_asked_ = logprobs_asked_ || logprobs;
  draws_ = draws_ || spec.params->temperature != 0.0F;
}

void StepSampling::launch(const Rows& residents, const Rows& visitors) {
  const int32_t count = residents.count + visitors.count;
  CHECK(launched_ + count <= limits_.max_logit_rows, "{} rows of logits, at most {}",
        launched_ + count, limits_.max_logit_rows);
  if (place_.keep_logits) {
    launch_copy_of_logits(count);
  }
  const bool greedy = !logprobs_asked_ && !draws_;
  launch_part(residents, 0, launched_, greedy);
  launch_part(visitors, residents.count, launched_ + residents.count, greedy);
  // Both pieces of memory are laid out alike.
  const Results to = results_in(*host_results_);
  const Results from = results_in(*device_results_);
  launch_copy(to.tokens + launched_, from.tokens + launched_, count);
  if (logprobs_asked_) {
    launch_copy(to.rows + launched_, from.rows + launched_, count);
  }
  launched_ += count;
}

void StepSampling::launch_part(const Rows& part, int64_t first_row, int64_t first_result,
                               bool greedy) {
  if (part.count == 0) {
    return;
  }
  const Results results = results_in(*device_results_);
  place_.device.launch(place_.stream,
                       device::SampleOp{.logits = logits() + first_row * weights_.padded_vocabulary,
                                        .stride = weights_.padded_vocabulary,
                                        .vocabulary = config_.vocabulary,
                                        .rows = part.rows,
                                        .results = results.rows + first_result,
                                        .row_count = part.count,
                                        .tokens = results.tokens + first_result,
                                        .greedy = greedy});
}

// As many rows at a time as there are logit rows. It works on gathered copies, so the rows stay as
// they are.
void StepSampling::launch_scoring(const Stages& stages, const StepInputs& inputs) {
  scored_count_ = inputs.scored_count;
  for (int32_t begin = 0; begin < inputs.scored_count; begin += limits_.max_logit_rows) {
    StepInputs part = inputs;
    part.sample_count = std::min(limits_.max_logit_rows, inputs.scored_count - begin);
    part.sampled_rows = inputs.scored_rows + begin;
    part.every_row_is_sampled_in_order = false;
    stages.launch_last_stage(place_.device, place_.stream, part);
    launch_part({inputs.scored + begin, part.sample_count}, 0, 0, false);
    place_.device.launch(
        place_.stream, CopyOp{host_scored_->data() + begin * kResultBytes,
                              results_in(*device_results_).rows, part.sample_count * kResultBytes});
  }
}

void StepSampling::launch_copy_of_logits(int64_t rows) {
  const int64_t row_bytes = weights_.padded_vocabulary * static_cast<int64_t>(sizeof(float));
  place_.device.launch(place_.stream, CopyOp{host_logits_->data() + launched_ * row_bytes,
                                             logits_->data(), rows * row_bytes});
  logits_copied_ = true;
}

void StepSampling::take_kept_logits() {
  const auto* logits = reinterpret_cast<const float*>(host_logits_->data());
  kept_logits_.clear();
  for (size_t row = 0; row < pending_.size(); ++row) {
    const float* begin = logits + static_cast<int64_t>(row) * weights_.padded_vocabulary;
    kept_logits_.insert(kept_logits_.end(), begin, begin + config_.vocabulary);
  }
}

void StepSampling::collect(StepResult& result) {
  if (logits_copied_) {
    take_kept_logits();
  }
  result.samples.clear();
  result.visitors.clear();
  result.scored.clear();
  result.samples.reserve(residents_);
  result.visitors.reserve(pending_.size() - residents_);
  const Results sampled = results_in(*host_results_);
  for (size_t i = 0; i < pending_.size(); ++i) {
    SampledToken& token = (i < residents_ ? result.samples : result.visitors).emplace_back();
    token.sequence = pending_[i].sequence;
    token.token = sampled.tokens[i];
    if (pending_[i].logprobs && token.token >= 0) {
      token.logprobs = std::make_unique<LogprobInfo>(logprobs_of(sampled.rows[i]));
    }
  }
  result.scored.reserve(static_cast<size_t>(scored_count_));
  for (int32_t i = 0; i < scored_count_; ++i) {
    const auto& one = reinterpret_cast<const kernels::SampleResult*>(host_scored_->data())[i];
    result.scored.push_back(one.token >= 0 ? logprobs_of(one)
                                           : LogprobInfo{.logprob = NAN, .rank = 0, .top = {}});
  }
}

}  // namespace tandem
