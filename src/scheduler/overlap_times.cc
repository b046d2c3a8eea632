#include "scheduler/overlap_times.h"

#include <algorithm>
#include <cmath>

#include "latency/questions.h"

namespace tandem {

OverlapStep overlap_step(const latency::StepTimeModel& model, const latency::HostTimes* host,
                         const latency::StepShape& residents, const HostRows& joining,
                         OverlapJoin join) {
  const int64_t stages = int64_t{model.layers()} + 1;
  latency::StepShape shape = residents;
  latency::add_visits(shape, stages, joining.rows);
  OverlapStep step{.time = model.step_time(shape)};
  const Nanos attends =
      host == nullptr ? Nanos{0} : host->attention_time(joining.rows, joining.context);
  double steps = 1;  // for a hop of all of them
  if (attends > step.time) {
    steps = static_cast<double>(attends.count()) / static_cast<double>(step.time.count());
    steps = join == OverlapJoin::kCohort ? std::ceil(steps) : steps;
  }
  step.tokens = static_cast<double>(joining.rows) / static_cast<double>(stages) / steps;
  return step;
}

}  // namespace tandem
