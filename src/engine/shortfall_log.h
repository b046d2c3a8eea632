// Counts the parts of plans that found no room and were left out, and logs some of them: a bug in
// the policy, which delays the sequence and harms nothing else. Internal to engine/; engine thread
// only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "engine/current_step.h"
#include "kv/kv_manager.h"

namespace tandem {

class ShortfallLog {
 public:
  ShortfallLog(std::string_view policy, const KvManager& kv, CurrentStep& step)
      : policy_(policy), kv_(kv), step_(step) {}

  // `what`: "a slice", "the offload", ...
  void add(std::string_view what, SequenceId sequence);

 private:
  const std::string policy_;
  const KvManager& kv_;
  CurrentStep& step_;
  uint64_t count_ = 0;  // since the start
};

}  // namespace tandem
