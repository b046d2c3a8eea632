#include "engine/shortfall_log.h"

#include <bit>

#include "base/log.h"

namespace tandem {

void ShortfallLog::add(std::string_view what, SequenceId sequence) {
  ++step_.record.put_off;
  if (!std::has_single_bit(++count_)) {  // logged rarely, however often it happens
    return;
  }
  log::error(
      "step {}: policy {} planned {} of sequence {} without room for it ({} of {} KV blocks are "
      "free, {} of {} on the host); it waits for a later step. This is a bug in the policy. It "
      "has happened {} times",
      step_.number, policy_, what, raw(sequence), kv_.free_blocks(), kv_.total_blocks(),
      kv_.free_blocks(Tier::kHost), kv_.total_blocks(Tier::kHost), count_);
}

}  // namespace tandem
