#include "scheduler/seen_outputs.h"

#include <limits>

namespace tandem {

void SeenOutputs::see(const SequenceView& sequence, int64_t step) {
  Seen& seen =
      seen_.try_emplace(sequence.id, Seen{.first_known = sequence.known_tokens}).first->second;
  seen.known = sequence.known_tokens;
  seen.step = step;
}

void SeenOutputs::follow(const SystemView& view) {
  for (const SequenceView& sequence : view.running) {
    see(sequence, view.step);
  }
  for (const SequenceView& sequence : view.offloaded) {
    see(sequence, view.step);
  }
  std::erase_if(seen_, [&](const auto& entry) {
    const Seen& seen = entry.second;
    if (seen.step == view.step) {
      return false;
    }
    if (seen.known > seen.first_known) {
      lengths_.observe(seen.known - seen.first_known + 1);  // the last token is not shown
    }
    return true;
  });
}

double SeenOutputs::rest(const SequenceView& sequence) const {
  const auto seen = seen_.find(sequence.id);
  const int32_t output = seen == seen_.end() ? 0 : sequence.known_tokens - seen->second.first_known;
  return lengths_.rest(output, std::numeric_limits<int32_t>::max());
}

}  // namespace tandem
