// Carries hops between the tiers: routed rows from the ring to the host's outbox, tasks to the
// attention host, results back to the device. Turns completions of copies and answers of the host
// into calls of the hop core, and what the core says into copies and tasks. (OmniServe 3.2,
// execution on two tiers.) Which visitors join a step is a Binder's decision; what a stage computes
// is forward/'s.
//
// Threads: engine thread only. Nothing blocks but the end of life.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/clock.h"
#include "device/device.h"
#include "exec/completion_notifier.h"
#include "exec/host_tier/hop_memory.h"
#include "exec/host_tier/hop_watch.h"
#include "exec/host_tier/link_time.h"
#include "exec/host_tier/offloaded_tokens.h"
#include "observe/timeline.h"
#include "piggyback/attention_host.h"
#include "piggyback/core/hop_core.h"
#include "plan/step.h"

namespace tandem {

class HopCarrier {
 public:
  struct Parts {  // all outlive the carrier
    device::Device& device;
    const Clock& clock;
    CompletionNotifier& notifier;
    piggyback::HopCore& core;
    OffloadedTokens& tokens;
    const HopMemory& memory;
    piggyback::AttentionHost& attention;
  };
  struct Options {
    Nanos hop_patience{0};     // see HostTierOptions
    int32_t group_stages = 1;  // see HostTierOptions
    int32_t block_tokens = 0;
    std::vector<observe::Track*> worker_tracks = {};  // by worker; empty: no spans are recorded
  };
  HopCarrier(const Parts& parts, Options options);
  ~HopCarrier();  // waits for the copies
  HopCarrier(const HopCarrier&) = delete;
  HopCarrier& operator=(const HopCarrier&) = delete;

  // Sends the visits' q, k and v, which are in the ring once `routed` has completed, to the host.
  void send(std::span<const piggyback::Visit> visits, device::EventId routed);
  // Takes what is complete and starts what follows from it.
  void pump();
  // Adds blocks that were lost or found since the last call.
  void take_events(TierEvents& events) { watch_.take_events(events); }
  // Sets what the carrier counts.
  void add_counts(TierCounts& counts) const;

 private:
  struct Exit {
    device::EventId copied{};
    std::vector<piggyback::HopId> hops;
  };
  struct Return {
    device::EventId copied{};
    Nanos launched{0};
    int64_t bytes = 0;
    std::vector<piggyback::RowRun> runs;
  };
  // Sums since the start.
  struct Sums {
    int64_t hops = 0;
    int64_t doubted = 0;
    int64_t bytes_to_host = 0;
    int64_t bytes_from_host = 0;
    Nanos returning_time{0};
  };

  void take_exits();
  void take_answers();
  void launch_returns();
  void take_returns();
  void hand_out();
  void trace(const piggyback::HopAnswer& answer);

  const Parts parts_;
  const std::vector<observe::Track*> worker_tracks_;
  const int32_t stages_per_notice_;
  HopWatch watch_;
  Sums sums_;
  std::deque<Exit> exits_;
  std::deque<Return> returns_;
  int32_t unnoticed_stages_ = 0;  // whose rows were sent since an exit last notified the owner
  LinkTime return_link_;

  // Reused from call to call.
  std::vector<piggyback::ExitRun> exit_runs_;
  std::vector<piggyback::HopTask> tasks_;
  std::vector<piggyback::HopAnswer> answers_;
  std::vector<std::vector<piggyback::HopId>> spare_hops_;
  std::vector<std::vector<piggyback::RowRun>> spare_runs_;
};

}  // namespace tandem
