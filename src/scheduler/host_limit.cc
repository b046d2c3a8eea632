#include "scheduler/host_limit.h"

#include "latency/questions.h"

namespace tandem {

HopsOfAStep hops_of_a_step(const SystemView& view, const latency::HostTimes& host,
                           const latency::StepTimeModel& model,
                           const latency::StepShape& residents) {
  int64_t rows = 0;
  int64_t context = 0;
  for (const SequenceView& sequence : view.offloaded) {
    if (decodes_on_host(sequence)) {
      ++rows;
      context += sequence.known_tokens;
    }
  }
  if (rows == 0) {
    return {};
  }
  latency::StepShape shape = residents;
  latency::add_visits(shape, int64_t{model.layers()} + 1, rows);
  return {.host = host.attention_time(rows, context), .step = model.step_time(shape)};
}

bool HostLimit::limits(const HopsOfAStep& hops, int64_t step) {
  if (steps_ == 0) {
    return false;
  }
  const bool is_idle = hops.host == Nanos{0};
  const bool changes = limits_ ? hops.host <= hops.step / 100 * kFreeShare : hops.host > hops.step;
  if (changes_.steps(changes, step) >= (limits_ && is_idle ? 0 : steps_)) {
    limits_ = !limits_;
    changes_ = {};
  }
  return limits_;
}

}  // namespace tandem
