// How many output tokens sequences will still get, learnt from those that a policy saw come and go
// in its views: a sequence's output is what its known tokens grow by while it is admitted. One that
// is dropped counts as ended; it is rare.
//
// One owner, which shows it each view once.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/ids.h"
#include "plan/views.h"
#include "scheduler/output_lengths.h"

namespace tandem {

class SeenOutputs {
 public:
  // About 0.1 us for each admitted sequence.
  void follow(const SystemView& view);
  // Of an admitted sequence of the view, or one that waits.
  [[nodiscard]] double rest(const SequenceView& sequence) const;

 private:
  struct Seen {
    int32_t first_known = 0;  // tokens, when it was first shown
    int32_t known = 0;
    int64_t step = 0;
  };
  void see(const SequenceView& sequence, int64_t step);

  OutputLengths lengths_;
  std::unordered_map<SequenceId, Seen> seen_;  // of the view shown last
};

}  // namespace tandem
