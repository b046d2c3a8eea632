// OmniServe's piggybacking control (3.3.6): visitors join stage by stage from the lowest up, as
// many as the time that is left of the step allows. What is left is read anew at each bind: the
// step's limit less the time that has really gone, less what the groups that are launched and not
// complete still take (their visitors included), and less what the model believes of the rest.
// If the step runs ahead of the model, visitors get the difference; if it lags, they wait.
//
// Guarantee: if the model is right, a step takes longer than its limit only for its residents and
// for overdue rows.
//
// Guarantee: a row that has been ready at a stage for `patience_steps` steps joins in the next
// bind of its stage that has a row and a credit for it (at the last stage a row of logits),
// whatever the time. Rows that are not overdue take no credits from overdue ones at later stages of
// a bind.
//
// Engine thread, as the policy that writes the forecast.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "latency/step_shape.h"
#include "latency/step_time_model.h"
#include "plan/decisions.h"

namespace tandem {

// What the policy believes of the step that it planned last.
struct StepForecast {
  int64_t step = 0;
  latency::StepShape shape;  // without visitors
  Nanos limit = Nanos::max();
};

class SlackBinder final : public Binder {
 public:
  // Both must outlive it. `patience_steps` > 0.
  SlackBinder(const StepForecast& forecast, const latency::StepTimeModel& model,
              int32_t patience_steps);
  void bind(const BindView& view, BindDecision& decision) override;

 private:
  // Rows that wait at a stage, oldest first, by the step in which they were first seen there.
  struct Ready {
    int64_t step = 0;
    int32_t rows = 0;
  };
  using Line = std::deque<Ready>;
  static void count(Line& line, int64_t step, int32_t ready);
  static void take(Line& line, int32_t rows);
  [[nodiscard]] int32_t overdue(const Line& line, int64_t step) const;
  // What is believed of the step that is bound, stage by stage.
  struct Stage {
    Nanos begins{0};  // after the step's first bind, without visitors; of a group's first stage
    Nanos visits{0};  // what the visitors that joined it add
  };
  void begin_step(const BindView& view);
  [[nodiscard]] bool is_limited() const;
  Nanos slack(const BindView& view);
  [[nodiscard]] Nanos time_of(int32_t first_stage, int32_t end_stage) const;
  [[nodiscard]] Nanos until_begin(const BindView& view) const;

  const StepForecast& forecast_;
  const latency::StepTimeModel& model_;
  int32_t patience_steps_;
  std::vector<Line> lines_;  // by stage
  int64_t step_ = -1;
  Nanos began_{0};             // of step_: its first bind
  Nanos step_time_{0};         // believed, without visitors
  std::vector<Stage> stages_;  // of step_
};

}  // namespace tandem
