// Fewer sequences decode on the host at a time while it takes longer than the accelerator (APEX 6,
// "online profiling"). Measured, not predicted: in a step without lanes each token under way on the
// host makes one hop if the host keeps up. If m of n tokens went on, the host took about n / m
// times as long as the step.
//
// More than kLate times as long: the limit falls below n by a quarter of the tokens that did not go
// on. All but a twentieth went on: it rises by one and a sixteenth. Between: it stays.
//
// One owner, which shows it each view once before planning and says then what was planned. It needs
// views with stages; without them it never limits.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/ids.h"
#include "plan/views.h"

namespace tandem {

class OverlapLimiter {
 public:
  static constexpr double kLate = 1.25;

  // About 0.05 us a sequence.
  void look(const SystemView& view);
  // The step planned last has residents and no lanes, so that what goes on in it counts.
  void count_step() { counts_ = true; }

  // Tokens that may be under way at a time; at least 1.
  [[nodiscard]] int64_t limit() const { return limit_; }

 private:
  struct Seen {
    SequenceId id{};
    int32_t known_tokens = 0;
    int32_t stage = 0;
  };
  struct Counts {
    int64_t under_way = 0;  // in both views, or done meanwhile
    int64_t moved = 0;      // of these
  };
  [[nodiscard]] Counts compare(const SystemView& view) const;
  void adapt(const Counts& counts);

  std::vector<Seen> seen_;  // tokens under way in the view before, by id
  bool counts_ = false;
  int64_t limit_ = std::numeric_limits<int32_t>::max();
};

}  // namespace tandem
