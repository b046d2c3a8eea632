// Copies cached prefixes back from the host for sequences that wait to begin: a prefix that is
// copied need not be computed. Internal to engine/; engine thread only.
//
// Nothing is reserved for the sequence: the copied blocks are cached like any others, and it finds
// them when it is admitted, usually at once. So no sequence holds blocks while it waits for more.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "engine/current_step.h"
#include "engine/sequence_table.h"
#include "kv/kv_manager.h"
#include "latency/corrected_model.h"
#include "latency/host_times.h"

namespace tandem {

struct PrefixFetchOptions {
  int32_t max_running = 0;
  // Time of a copy from the host, by blocks. All 0: not known, and assumed shorter than computing.
  latency::AlphaBeta from_host;
  // Null: computing is assumed to take longer than any copy.
  const latency::CorrectedModel* step_times = nullptr;
};

class PrefixFetcher {
 public:
  PrefixFetcher(const PrefixFetchOptions& options, SequenceTable& table, KvManager& kv,
                CurrentStep& step)
      : options_(options), table_(table), kv_(kv), step_(step) {}

  // Begins copies of prefixes that the host holds, for sequences at the head of the queue, before
  // these are shown to the policy. At most once for each stay of a sequence in the queue.
  void begin();
  // False: the transfer is not a fetch.
  bool copied(int64_t transfer);
  // Ends the fetches whose blocks are all there.
  void settle();

  [[nodiscard]] bool busy() const { return !fetches_.empty(); }
  // Ends all fetches, copied or not, before the end.
  void release_all();
  // Appends the KV that fetches hold to `users`.
  void audit(std::vector<const SequenceKv*>& users) const;

 private:
  struct Fetch {
    int64_t transfer = 0;  // 0: no copy of its own is in flight
    SequenceId sequence{};
    PrefixFetch prefix;
  };

  void begin_one(LiveSequence& sequence, const HostPrefix& prefix);
  [[nodiscard]] bool pays(const LiveSequence& sequence, const HostPrefix& prefix) const;
  [[nodiscard]] int64_t blocks_promised() const;

  const PrefixFetchOptions options_;
  SequenceTable& table_;
  KvManager& kv_;
  CurrentStep& step_;
  std::vector<Fetch> fetches_;
};

}  // namespace tandem
