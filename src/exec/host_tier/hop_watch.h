// Watches for attention workers that do not answer. Overdue attempts are withdrawn and tried again;
// a worker that hangs inside a kernel is lost, and the host block that it may still write to stays
// out of use until it answers. Engine thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "exec/host_tier/offloaded_tokens.h"
#include "piggyback/attention_host.h"
#include "piggyback/core/hop_core.h"
#include "piggyback/core/watchdog.h"
#include "plan/step.h"

namespace tandem {

class HopWatch {
 public:
  // `core` and `tokens` must outlive the watch.
  HopWatch(piggyback::HopCore& core, OffloadedTokens& tokens, Nanos patience, int32_t block_tokens);

  // True a few times per patience: check, take the answers of withdrawn attempts, then check_lost.
  [[nodiscard]] bool due(Nanos now);
  // Withdraws overdue attempts and returns how many were given up.
  [[nodiscard]] int64_t check(Nanos now, piggyback::AttentionHost& attention);
  void check_lost(Nanos now);
  // An answer of any attempt.
  void answered(const piggyback::HopAnswer& answer) {
    if (!lost_.empty()) {
      find(answer);
    }
  }

  // Adds blocks that were lost or found since the last call.
  void take_events(TierEvents& events);
  [[nodiscard]] int64_t workers_lost() const { return std::ssize(lost_); }

 private:
  struct Lost {
    piggyback::HopTask attempt;
    BlockId block{};
  };
  void find(const piggyback::HopAnswer& answer);

  piggyback::HopCore& core_;
  OffloadedTokens& tokens_;
  piggyback::Watchdog watchdog_;
  const int32_t block_tokens_;
  Nanos last_check_{0};
  std::vector<Lost> lost_;  // attempts that have not come back
  std::vector<BlockId> lost_blocks_;
  std::vector<BlockId> found_blocks_;
  // Reused from call to call.
  std::vector<piggyback::HopTask> dropped_;
  std::vector<piggyback::HopTask> newly_lost_;
};

}  // namespace tandem
