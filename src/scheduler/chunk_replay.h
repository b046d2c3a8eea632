// When prompts that wait would be done, by the model: their chunks are cut step by step as the
// omniserve policy cuts them. Asked by that policy before it gives time to best effort, and by the
// admission of latency-sensitive requests (OmniServe 3.3.3). Plain functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/prompt_rest.h"
#include "latency/step_shape.h"
#include "latency/step_time_model.h"

namespace tandem {

// The least of a prompt that a step computes where it computes any: the rows of a tile.
inline constexpr int32_t kTileTokens = 16;

// Rows of the chunk that an overdue best-effort prompt gets whatever the time: a tile. Attention
// makes a tile dear far into a long prompt; there the chunk has fewer rows, but at least one, so
// that a step with it alone takes at most a quarter longer than with a tile of a new prompt.
int32_t overdue_chunk(const latency::StepTimeModel& model, int32_t computed_tokens);

struct PromptAhead {
  PromptRest rest;           // something is pending
  Nanos due = Nanos::max();  // from now, for PromptReplay::late
};

struct ReplayRules {
  latency::StepShape decodes;  // that every step contains; each grows by a token a step
  Nanos limit = Nanos::max();  // of a step
  int32_t step_tokens = 0;     // rows of a step, decodes included
  Nanos before{0};             // until the first step begins
  Nanos apart{0};              // what best effort may add to each step beyond its limit
  // Rows that best effort may take from the prompts, once in `patience_steps` steps.
  int32_t forced_rows = 0;
  // The same of best effort that is not here yet: rows and time of the last of as many steps.
  int32_t later_rows = 0;
  Nanos later{0};
  int32_t patience_steps = 64;
};

// Steps beyond the first `kExactSteps` are walked roughly: their chunks are taken from the steps
// before, within some percent of what would be cut.
inline constexpr int32_t kReplaySteps = 4096;
inline constexpr int32_t kExactSteps = 64;

// A line of prompts, walked step by step as it grows. Copies are cheap, so that a line is walked
// once and then asked what another prompt would change.
class PromptReplay {
 public:
  // `model` must outlive it.
  PromptReplay(const latency::StepTimeModel& model, const ReplayRules& rules);

  // Puts a prompt behind the others, also into the step in which the last of them ends. Gives the
  // step in which it ends itself, from 0; kReplaySteps: beyond what is walked.
  int32_t add(const PromptAhead& prompt);
  // Ends the step that is open. Nothing may be added after it.
  void finish();

  // When a step that has ended does so, from now; Nanos::max() beyond what is walked.
  [[nodiscard]] Nanos end_of(int32_t step) const {
    return step < static_cast<int32_t>(ends_.size()) ? ends_[static_cast<size_t>(step)]
                                                     : Nanos::max();
  }
  // By how much prompts end later than they are due, all together, in steps that have ended.
  [[nodiscard]] Nanos late() const { return late_; }
  // When the last prompt that is late ends, from now; 0 where none is.
  [[nodiscard]] Nanos late_until() const { return late_until_; }
  // The longest of the ended steps that contains decodes, what best effort may add left out.
  [[nodiscard]] Nanos longest_step() const { return longest_; }

 private:
  void open();
  void close();
  [[nodiscard]] int32_t chunk_of(const PromptRest& rest, int32_t most);
  [[nodiscard]] int32_t rough_chunk(const PromptRest& rest, int32_t most);

  const latency::StepTimeModel* model_;
  ReplayRules rules_;
  latency::StepShape shape_;  // of the open step
  int32_t room_ = 0;
  int32_t usual_rows_ = 0;       // of prompts in a step that the limit cuts; 0: none was cut yet
  int32_t least_ = kTileTokens;  // of the next chunk in the open step
  int64_t owed_rows_ = 0;        // to best effort, times `patience_steps`
  int32_t until_later_ = 0;      // steps before one in which best effort that comes claims its part
  latency::StepShape joining_;   // decodes that begin when the open step ends
  std::vector<Nanos> dues_;      // of prompts that end in the open step
  std::vector<Nanos> ends_;
  Nanos late_{0};
  Nanos late_until_{0};
  Nanos now_;
  Nanos longest_{0};
};

// For each prompt, in their order, how long from now until its first token; Nanos::max() for what
// lies beyond `kReplaySteps` steps. Prompts that are done decode in the steps after.
std::vector<Nanos> replay_prompts(const latency::StepTimeModel& model, const ReplayRules& rules,
                                  std::span<const PromptAhead> prompts);

// What best effort may claim whatever the time, because none of it is passed over for good: each
// decode a token, one prompt a tile, each offloaded sequence a visit, once in `patience_steps`
// steps.
struct ForcedWork {
  int32_t decodes = 0;
  int64_t context = 0;  // of these
  int32_t prompts = 0;
  int64_t prompt_tokens = 0;  // of the longest of these
  int32_t offloaded = 0;

  // Of residents, in a step with all of it.
  [[nodiscard]] int32_t rows() const { return decodes + (prompts > 0 ? kTileTokens : 0); }
};
// What all of it would add to a step of `shape`, at most: the tile may lie anywhere in its prompt.
Nanos forced_time(const latency::StepTimeModel& model, latency::StepShape shape,
                  const ForcedWork& work);

// What best effort may claim of the steps to come, which first tokens are planned and promised
// beside: what there is may claim its part at once, and a prompt may come and claim its tile after
// `patience_steps` steps.
struct ForcedShare {
  Nanos at_once{0};
  Nanos apart{0};  // of each step
  int32_t rows = 0;
  Nanos later{0};
  int32_t later_rows = 0;
};
ForcedShare forced_share(const latency::StepTimeModel& model, const latency::StepShape& shape,
                         const ForcedWork& work, int32_t patience_steps);

// A first token is planned for and promised by then: a part of its target is kept for what the
// model does not know.
inline constexpr int64_t kKeptShareOfTarget = 10;
constexpr Nanos planned_due(Nanos arrived, Nanos due) {
  return due == Nanos::max() || due <= arrived ? due : due - (due - arrived) / kKeptShareOfTarget;
}

}  // namespace tandem
