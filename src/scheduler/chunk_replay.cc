#include "scheduler/chunk_replay.h"

#include <algorithm>
#include <limits>

#include "latency/questions.h"

namespace tandem {

int32_t chunk_within(const latency::StepTimeModel& model, const latency::StepShape& shape,
                     const ChunkAsk& ask, Nanos limit, LeastChunk least) {
  const int32_t most = std::min(ask.pending_tokens, ask.most_tokens);
  if (most < 1) {
    return 0;
  }
  const int32_t tile = least == LeastChunk::kTile ? std::min(most, kTileTokens) : 0;
  if (limit == Nanos::max()) {
    return most;
  }
  return std::max(tile, latency::largest_chunk(model, shape,
                                               {.computed_tokens = ask.computed_tokens,
                                                .pending_tokens = ask.pending_tokens,
                                                .last_logits = ask.choices,
                                                .most_tokens = most,
                                                .guess = ask.guess},
                                               limit));
}

namespace {

// By so much is a prompt late that ends beyond what is walked.
constexpr Nanos kBeyondWalk = std::chrono::hours(1);
// Time stands still here, far below the end of Nanos: after ten years.
constexpr Nanos kNever = std::chrono::hours(24 * 365 * 10);

}  // namespace

PromptReplay::PromptReplay(const latency::StepTimeModel& model, const ReplayRules& rules)
    : model_(&model), rules_(rules), now_(rules.before) {
  rules_.decodes.logit_rows = rules_.decodes.decode_rows;
  shape_ = rules_.decodes;
  room_ = std::max(rules_.step_tokens - static_cast<int32_t>(shape_.rows()), kTileTokens);
}

void PromptReplay::close() {
  const Nanos took = model_->step_time(shape_);
  if (rules_.decodes.decode_rows > 0) {
    longest_ = std::max(longest_, took);
  }
  now_ = std::min(now_ + took + rules_.apart, kNever);
  ends_.push_back(now_);
  for (const Nanos due : dues_) {
    late_ = std::min(late_ + std::max(now_ - due, Nanos{0}), kNever);
  }
  dues_.clear();
  rules_.decodes.decode_context += rules_.decodes.decode_rows + joining_.decode_context;
  rules_.decodes.decode_rows += joining_.decode_rows;
  rules_.decodes.logit_rows = rules_.decodes.decode_rows;
  joining_ = {};
  shape_ = rules_.decodes;
  room_ = std::max(rules_.step_tokens - static_cast<int32_t>(shape_.rows()), kTileTokens);
  least_ = LeastChunk::kTile;
}

// A step like the last one that was cut takes about as many rows.
int32_t PromptReplay::rough_chunk(const PromptAhead& rest, int32_t most) {
  const int32_t tile = least_ == LeastChunk::kTile ? std::min(most, kTileTokens) : 0;
  constexpr int32_t kStride = 32;  // rows change by that part
  while (true) {
    const int32_t chunk = std::clamp(usual_rows_ - shape_.prefill_rows, tile, most);
    latency::StepShape tried = shape_;
    if (chunk > 0) {
      tried.add_prefill(rest.computed_tokens, chunk, chunk == rest.pending_tokens ? 1 : 0);
    }
    const Nanos time = model_->step_time(tried);
    if (time > rules_.limit && chunk > tile) {
      usual_rows_ -= usual_rows_ / kStride + 1;
      continue;
    }
    if (chunk < most && time < rules_.limit - rules_.limit / kStride) {
      usual_rows_ += usual_rows_ / kStride + 1;
    }
    return chunk;
  }
}

int32_t PromptReplay::chunk_of(const PromptAhead& rest, int32_t most) {
  most = std::min({most, room_, rest.pending_tokens});
  if (rules_.limit < Nanos::max() && std::ssize(ends_) >= kExactSteps && usual_rows_ > 0) {
    return rough_chunk(rest, most);
  }
  const int32_t chunk = chunk_within(*model_, shape_,
                                     {.computed_tokens = rest.computed_tokens,
                                      .pending_tokens = rest.pending_tokens,
                                      .choices = rest.choices,
                                      .most_tokens = most,
                                      .guess = std::max(usual_rows_ - shape_.prefill_rows, 0)},
                                     rules_.limit, least_);
  if (chunk < most) {
    usual_rows_ = shape_.prefill_rows + chunk;
  }
  return chunk;
}

int32_t PromptReplay::add(const PromptAhead& prompt) {
  PromptAhead rest = prompt;
  int32_t most = std::numeric_limits<int32_t>::max();
  while (static_cast<int32_t>(ends_.size()) < kReplaySteps) {
    const bool fresh = shape_.prefill_rows == 0;
    const int32_t chunk = chunk_of(rest, most);
    if (chunk > 0) {
      least_ = LeastChunk::kNothing;
      room_ -= chunk;
      shape_.add_prefill(rest.computed_tokens, chunk,
                         chunk == rest.pending_tokens ? prompt.choices : 0);
      rest.computed_tokens += chunk;
      rest.pending_tokens -= chunk;
    }
    if (rest.pending_tokens == 0) {
      if (prompt.due < Nanos::max()) {
        dues_.push_back(prompt.due);
      }
      for (int32_t choice = 0; choice < prompt.choices; ++choice) {
        joining_.add_decode(rest.computed_tokens + 1);
      }
      return static_cast<int32_t>(ends_.size());
    }
    // A step that it has to itself takes no more of it than the one before: contexts only grow.
    most = fresh ? std::max(chunk, kTileTokens) : most;
    close();
  }
  late_ += prompt.due < Nanos::max() ? kBeyondWalk : Nanos{0};
  return kReplaySteps;
}

void PromptReplay::finish() {
  if (shape_.prefill_rows > 0 && static_cast<int32_t>(ends_.size()) < kReplaySteps) {
    close();
  }
}

std::vector<Nanos> replay_prompts(const latency::StepTimeModel& model, const ReplayRules& rules,
                                  std::span<const PromptAhead> prompts) {
  PromptReplay replay(model, rules);
  std::vector<int32_t> steps;
  steps.reserve(prompts.size());
  for (const PromptAhead& prompt : prompts) {
    steps.push_back(replay.add(prompt));
  }
  replay.finish();
  std::vector<Nanos> done;
  done.reserve(prompts.size());
  for (const int32_t step : steps) {
    done.push_back(replay.end_of(step));
  }
  return done;
}

Nanos forced_time(const latency::StepTimeModel& model, latency::StepShape shape,
                  const ForcedWork& work) {
  const Nanos without = model.step_time(shape);
  shape.decode_rows += work.decodes;
  shape.decode_context += work.context;
  shape.logit_rows += work.decodes;
  if (work.prompts > 0) {
    shape.add_prefill(0, kTileTokens, 1);
  }
  shape.visits += work.offloaded;
  return model.step_time(shape) - without;
}

}  // namespace tandem
