#include "exec/step_sampling.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

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

}  // namespace

Status StepSampling::allocate(int64_t logits_bytes, int64_t device_result_bytes,
                              int64_t host_result_bytes) {
  ASSIGN_OR_RETURN(logits_, place_.device.allocate(MemoryKind::kDevice, logits_bytes));
  ASSIGN_OR_RETURN(device_results_,
                   place_.device.allocate(MemoryKind::kDevice, device_result_bytes));
  ASSIGN_OR_RETURN(host_results_,
                   place_.device.allocate(MemoryKind::kHostPinned, host_result_bytes));
  pending_.reserve(static_cast<size_t>(limits_.max_logit_rows));
  return {};
}

void StepSampling::begin(const StepInput& input) {
  pending_.clear();
  for (const StepSlice& slice : input.slices) {
    for (const SampleSpec& spec : slice.samples) {
      pending_.push_back({spec.sequence, spec.params->logprobs >= 0});
    }
  }
  residents_ = pending_.size();
  launched_ = 0;
  scored_count_ = 0;
  logits_copied_ = false;
}

void StepSampling::add_visitor(const SampleSpec& spec) {
  pending_.push_back({spec.sequence, spec.params->logprobs >= 0});
}

void StepSampling::launch(const Rows& residents, const Rows& visitors) {
  const int32_t count = residents.count + visitors.count;
  CHECK(launched_ + count <= limits_.max_logit_rows, "{} rows of logits, at most {}",
        launched_ + count, limits_.max_logit_rows);
  if (keep_logits_) {
    launch_copy_of_logits(count);
  }
  launch_part(residents, 0, launched_);
  launch_part(visitors, residents.count, launched_ + residents.count);
  place_.device.launch(place_.stream, CopyOp{host_results_->data() + launched_ * kResultBytes,
                                             device_results_->data() + launched_ * kResultBytes,
                                             kResultBytes * count});
  launched_ += count;
}

void StepSampling::launch_part(const Rows& part, int64_t first_row, int64_t first_result) {
  if (part.count == 0) {
    return;
  }
  auto* results = reinterpret_cast<kernels::SampleResult*>(device_results_->data());
  place_.device.launch(
      place_.stream,
      kernels::SampleArgs{.logits = logits() + first_row * weights_.padded_vocabulary,
                          .stride = weights_.padded_vocabulary,
                          .vocabulary = config_.vocabulary,
                          .rows = part.rows,
                          .results = results + first_result,
                          .row_count = part.count});
}

// As many rows at a time as there are logit rows. It works on gathered copies, so the rows stay as
// they are.
void StepSampling::launch_scoring(const Stages& stages, const StepInputs& inputs) {
  if (!host_scored_) {
    auto memory =
        place_.device.allocate(MemoryKind::kHostPinned, limits_.max_batched_tokens * kResultBytes);
    CHECK(memory.ok(), "room for scored prompt tokens: {}", memory.error().message);
    host_scored_ = std::move(memory).value();
  }
  scored_count_ = inputs.scored_count;
  for (int32_t begin = 0; begin < inputs.scored_count; begin += limits_.max_logit_rows) {
    StepInputs part = inputs;
    part.sample_count = std::min(limits_.max_logit_rows, inputs.scored_count - begin);
    part.sampled_rows = inputs.scored_rows + begin;
    part.every_row_is_sampled_in_order = false;
    stages.launch_stage(place_.device, place_.stream, part, config_.layers);
    launch_part({inputs.scored + begin, part.sample_count}, 0, 0);
    place_.device.launch(
        place_.stream, CopyOp{host_scored_->data() + begin * kResultBytes, device_results_->data(),
                              part.sample_count * kResultBytes});
  }
}

void StepSampling::launch_copy_of_logits(int64_t rows) {
  if (!host_logits_) {
    auto memory = place_.device.allocate(MemoryKind::kHostPinned, logits_->bytes());
    CHECK(memory.ok(), "keeping logits: {}", memory.error().message);
    host_logits_ = std::move(memory).value();
  }
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
  result.samples.reserve(residents_);
  result.visitors.reserve(pending_.size() - residents_);
  const auto* sampled = reinterpret_cast<const kernels::SampleResult*>(host_results_->data());
  for (size_t i = 0; i < pending_.size(); ++i) {
    SampledToken token{.sequence = pending_[i].sequence, .token = sampled[i].token, .logprobs = {}};
    if (pending_[i].logprobs && sampled[i].token >= 0) {
      token.logprobs = logprobs_of(sampled[i]);
    }
    (i < residents_ ? result.samples : result.visitors).push_back(std::move(token));
  }
  result.scored.reserve(static_cast<size_t>(scored_count_));
  for (int32_t i = 0; i < scored_count_; ++i) {
    const auto& one = reinterpret_cast<const kernels::SampleResult*>(host_scored_->data())[i];
    result.scored.push_back(one.token >= 0 ? logprobs_of(one)
                                           : LogprobInfo{.logprob = NAN, .rank = 0, .top = {}});
  }
}

}  // namespace tandem
