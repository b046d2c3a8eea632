#include "scheduler/overlap_limiter.h"

#include <algorithm>
#include <utility>

namespace tandem {

void OverlapLimiter::look(const SystemView& view) {
  if (std::exchange(counts_, false)) {
    adapt(compare(view));
  }
  seen_.clear();
  for (const SequenceView& sequence : view.offloaded) {
    if (sequence.stage >= 0) {
      seen_.push_back({sequence.id, sequence.known_tokens, sequence.stage});
    }
  }
  std::ranges::sort(seen_, {}, &Seen::id);
}

// Tokens that entered since are left out: they had no whole step.
OverlapLimiter::Counts OverlapLimiter::compare(const SystemView& view) const {
  Counts counts;
  for (const SequenceView& sequence : view.offloaded) {
    const auto before = std::ranges::lower_bound(seen_, sequence.id, {}, &Seen::id);
    if (before == seen_.end() || before->id != sequence.id) {
      continue;
    }
    const bool is_done = sequence.known_tokens > before->known_tokens;
    if (is_done || sequence.stage >= 0) {
      ++counts.under_way;
      counts.moved += is_done || sequence.stage > before->stage ? 1 : 0;
    }
  }
  return counts;
}

void OverlapLimiter::adapt(const Counts& counts) {
  if (counts.under_way == 0) {
    return;
  }
  const int64_t behind = counts.under_way - counts.moved;
  if (static_cast<double>(counts.under_way) > kLate * static_cast<double>(counts.moved)) {
    const int64_t fewer = counts.under_way - std::max<int64_t>(behind / 4, 1);
    limit_ = std::max<int64_t>(std::min(limit_, fewer), 1);
  } else if (behind * 20 <= counts.under_way) {
    limit_ = std::min<int64_t>(limit_ + 1 + limit_ / 16, std::numeric_limits<int32_t>::max());
  }
}

}  // namespace tandem
