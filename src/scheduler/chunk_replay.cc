#include "scheduler/chunk_replay.h"

#include <algorithm>
#include <limits>

#include "latency/questions.h"

namespace tandem {

namespace {

// A step with a tile of a new prompt alone.
Nanos tile_step(const latency::StepTimeModel& model) {
  latency::StepShape tile;
  tile.add_prefill(0, kTileTokens, 1);
  return model.step_time(tile);
}

// What an overdue chunk may take beyond a tile of a new prompt.
Nanos overdue_allowance(const latency::StepTimeModel& model) { return tile_step(model) / 4; }

}  // namespace

int32_t overdue_chunk(const latency::StepTimeModel& model, int32_t computed_tokens) {
  return latency::largest_chunk(
      model, {},
      {.prompt = {.computed_tokens = computed_tokens, .pending_tokens = kTileTokens, .choices = 1},
       .max_tokens = kTileTokens,
       .guess = kTileTokens,
       .least_tokens = 1},
      tile_step(model) + overdue_allowance(model));
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
  owed_rows_ = int64_t{rules_.forced_rows} * (rules_.patience_steps - 1);
  until_later_ = rules_.patience_steps + 1;
  open();
}

// Best effort takes its rows from the first steps, which is when they delay the most prompts, and
// gets as many again in `patience_steps` steps.
void PromptReplay::open() {
  shape_ = rules_.decodes;
  room_ = std::max(rules_.step_tokens - static_cast<int32_t>(shape_.rows()), kTileTokens);
  least_ = kTileTokens;
  if (rules_.forced_rows > 0) {
    owed_rows_ += rules_.forced_rows;
    const int64_t taken =
        std::min<int64_t>(owed_rows_ / rules_.patience_steps, room_ - kTileTokens);
    owed_rows_ -= taken * rules_.patience_steps;
    room_ -= static_cast<int32_t>(taken);
  }
  if (--until_later_ == 0) {
    room_ = std::max(room_ - rules_.later_rows, kTileTokens);
  }
}

void PromptReplay::close() {
  const Nanos took = model_->step_time(shape_);
  if (rules_.decodes.decode_rows > 0) {
    longest_ = std::max(longest_, took);
  }
  now_ = std::min(now_ + took + rules_.apart, kNever);
  if (until_later_ == 0) {
    now_ = std::min(now_ + rules_.later, kNever);
    until_later_ = rules_.patience_steps;
  }
  ends_.push_back(now_);
  for (const Nanos due : dues_) {
    late_ = std::min(late_ + std::max(now_ - due, Nanos{0}), kNever);
    late_until_ = now_ > due ? now_ : late_until_;
  }
  dues_.clear();
  rules_.decodes.decode_context += rules_.decodes.decode_rows + joining_.decode_context;
  rules_.decodes.decode_rows += joining_.decode_rows;
  rules_.decodes.logit_rows = rules_.decodes.decode_rows;
  joining_ = {};
  open();
}

// A step like the last one that was cut takes about as many rows.
int32_t PromptReplay::rough_chunk(const PromptRest& rest, int32_t most) {
  const int32_t tile = std::min(most, least_);
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

int32_t PromptReplay::chunk_of(const PromptRest& rest, int32_t most) {
  most = std::min({most, room_, rest.pending_tokens});
  if (rules_.limit < Nanos::max() && std::ssize(ends_) >= kExactSteps && usual_rows_ > 0) {
    return rough_chunk(rest, most);
  }
  const int32_t chunk =
      latency::largest_chunk(*model_, shape_,
                             {.prompt = rest,
                              .max_tokens = most,
                              .guess = std::max(usual_rows_ - shape_.prefill_rows, 0),
                              .least_tokens = least_},
                             rules_.limit);
  if (chunk < most) {
    usual_rows_ = shape_.prefill_rows + chunk;
  }
  return chunk;
}

int32_t PromptReplay::add(const PromptAhead& prompt) {
  PromptRest rest = prompt.rest;
  int32_t most = std::numeric_limits<int32_t>::max();
  while (static_cast<int32_t>(ends_.size()) < kReplaySteps) {
    const bool fresh = shape_.prefill_rows == 0;
    const int32_t room = room_;
    const int32_t chunk = chunk_of(rest, most);
    if (chunk > 0) {
      least_ = 0;
      room_ -= chunk;
      shape_.add_prefill(rest.computed_tokens, chunk,
                         chunk == rest.pending_tokens ? rest.choices : 0);
      rest = rest.after(chunk);
    }
    if (rest.pending_tokens == 0) {
      if (prompt.due < Nanos::max()) {
        dues_.push_back(prompt.due);
      }
      for (int32_t choice = 0; choice < rest.choices; ++choice) {
        joining_.add_decode(rest.computed_tokens + 1);
      }
      return static_cast<int32_t>(ends_.size());
    }
    // A step that it has to itself takes no more of it than the one before, where time was short:
    // contexts only grow.
    most = fresh && chunk < room ? std::max(chunk, kTileTokens) : most;
    close();
  }
  if (prompt.due < Nanos::max()) {
    late_ += kBeyondWalk;
    late_until_ = kBeyondWalk;
  }
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
  shape.visits += work.offloaded;
  if (work.prompts == 0) {
    return model.step_time(shape) - without;
  }
  const auto with_chunk = [&](int64_t computed_tokens, int32_t rows) {
    latency::StepShape with = shape;
    with.add_prefill(computed_tokens, rows, 1);
    return model.step_time(with);
  };
  const Nanos tile = with_chunk(0, kTileTokens);
  if (work.prompt_tokens <= kTileTokens) {
    return tile - without;
  }
  // As overdue_chunk cuts it: a whole tile as far as that is allowed, in the end a single row.
  const Nanos deepest = with_chunk(work.prompt_tokens - kTileTokens, kTileTokens);
  const Nanos single = with_chunk(work.prompt_tokens - 1, 1);
  return std::max(std::min(deepest, tile + overdue_allowance(model)), single) - without;
}

ForcedShare forced_share(const latency::StepTimeModel& model, const latency::StepShape& shape,
                         const ForcedWork& work, int32_t patience_steps) {
  ForcedShare share{.at_once = forced_time(model, shape, work), .rows = work.rows()};
  ForcedWork with_tile = work;
  with_tile.prompts = 1;
  with_tile.prompt_tokens = 0;
  const Nanos most = forced_time(model, shape, with_tile) + overdue_allowance(model);
  if (work.prompts > 0) {
    share.apart = std::max(share.at_once, most) / patience_steps;
    return share;
  }
  share.apart = share.at_once / patience_steps;
  share.later = most - share.at_once;
  share.later_rows = kTileTokens;
  return share;
}

}  // namespace tandem
