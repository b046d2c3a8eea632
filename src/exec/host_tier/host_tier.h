// The executor's side of a second tier: the memory that hops travel through, the streams that carry
// them, the host's KV pool and attention workers, and block transfers between the pools. Turns
// completions of the device and the workers into calls of the hop core, and what the core says into
// copies and tasks. (OmniServe 3.2, execution on two tiers; decisions about who joins are a
// Binder's, what a stage computes is forward/'s.)
//
//   device: ring [ring rows] · returns [hop rows] · residual store [slots]
//   host:   outbox [hop rows] · results [hop rows] · KV pool [host blocks]
//
// Threads: engine thread only; the wake-up is called on any. Nothing blocks
// but create and the end of life.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "device/device.h"
#include "exec/forward/stages.h"
#include "exec/forward_executor.h"
#include "exec/host_tier/link_time.h"
#include "exec/host_tier/transfers.h"
#include "exec/workspaces.h"
#include "kernels/kv_layout.h"
#include "model/config.h"
#include "model/weights.h"
#include "piggyback/core/hop_core.h"
#include "piggyback/core/watchdog.h"
#include "piggyback/workers/faulty_workers.h"
#include "piggyback/workers/host_attention.h"
#include "plan/step.h"

namespace tandem {

class HostTier {
 public:
  // `device_kv` is the start of the accelerator's pool. Everything referred to must outlive it.
  static Result<std::unique_ptr<HostTier>> create(
      const model::ModelConfig& config, const model::Weights& weights, device::Device& device,
      const ExecutorOptions& options, std::byte* device_kv, std::function<void()> on_event);
  ~HostTier();  // waits for the device's copies and for the workers
  HostTier(const HostTier&) = delete;
  HostTier& operator=(const HostTier&) = delete;

  // Adds the accelerator's ends of the queues to what the stages work in.
  void place(StageBuffers& buffers) const;

  void enter(const OffloadedToken& token);
  void leave(SequenceId sequence);
  void start(const TierTransfer& transfer);
  [[nodiscard]] TierEvents take_events();
  [[nodiscard]] TierCounts counts() const;
  // A group of stages is bound, and so many visitors could join it.
  void count_ready(int64_t visitors) {
    counts_.ready = std::max<int64_t>(counts_.ready, 0) + visitors;
  }

  // Takes what is complete and starts what follows from it.
  void pump();

  // While the step of residents that is launched looks after hops at each bind, the owner is woken
  // for them seldom: at most every `apart` for answers, and not for each copy. 0: at once, for
  // whoever waits for hops. Set back to 0 it wakes for what was kept quiet.
  void wake_seldom(Nanos apart);

  // The workers stand still, or go on.
  void freeze() { attention_->freeze(); }
  void thaw() { attention_->thaw(); }
  [[nodiscard]] int64_t tasks_in_hand() const { return attention_->in_hand(); }

  // -- parts timed alone, see ForwardExecutor (host_probe.cc)
  [[nodiscard]] HostProbeLimits probe_limits() const;
  [[nodiscard]] Result<Nanos> time_attention(int32_t rows, int32_t context);
  [[nodiscard]] Nanos time_copy(TransferKind kind, int64_t bytes);

  // -- a step's groups
  [[nodiscard]] const piggyback::HopCore& hops() const { return core_; }
  [[nodiscard]] Nanos now() const { return clock_.now(); }
  void bind(int32_t stage, int32_t limit, int64_t ticket, std::vector<piggyback::Visit>& visits);
  void bind_lane(int32_t stage, int32_t lane, int32_t limit, int64_t ticket,
                 std::vector<piggyback::Visit>& visits);
  // The visits' q, k and v are in the ring once `routed` has completed: sends them to the host.
  void send(std::span<const piggyback::Visit> visits, device::EventId routed);
  void group_done(int64_t ticket) { core_.group_done(ticket); }
  // Of the token of `sequence` that is under way.
  [[nodiscard]] const SampleSpec& sample_of(SequenceId sequence) const;
  // Of the host, as far as that token.
  void append_blocks(SequenceId sequence, std::vector<BlockId>& blocks) const;

 private:
  struct Shape {
    int64_t routed_row_bytes = 0;
    int64_t attended_row_bytes = 0;
    int64_t residual_stride = 0;  // floats
    int32_t block_tokens = 0;
  };
  using Table = std::vector<int32_t>;  // of host blocks; with room for the longest sequence
  struct Offloaded {
    std::shared_ptr<Table> table;  // never moves while it grows
    SampleSpec sample;
    std::vector<std::shared_ptr<Table>> old_tables;  // that a late worker may still read
  };
  // All that workers touch: theirs as long as one of them lives.
  struct WorkersMemory {
    std::unique_ptr<piggyback::FaultyWorkers> faults;  // null: none are planted
    std::unique_ptr<device::Memory> outbox;
    std::unique_ptr<device::Memory> results;
    std::unique_ptr<device::Memory> kv;
    std::unique_ptr<device::Memory> partials;
    std::vector<std::shared_ptr<Table>> lost_tables;  // of sequences that left a worker behind
  };
  struct Lost {
    piggyback::LostAttempt attempt;
    BlockId block{};
  };
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

  HostTier(device::Device& device, const ExecutorOptions& options, const Shape& shape,
           const piggyback::HopLimits& limits, size_t longest_table);
  Status allocate(const HostTierSizes& sizes);
  Status start_workers(const model::ModelConfig& config, const model::Weights& weights,
                       const ExecutorOptions& options, const kernels::KvLayout& layout);
  void set_table(Offloaded& entry, std::span<const BlockId> table);
  void take_exits();
  void take_answers();
  void send_returns();
  void hand_out();
  [[nodiscard]] const int32_t* table_of(const piggyback::HopTask& task);
  void watch();
  void lose();
  void find(const piggyback::AttentionDone& answer);
  void gather_events();
  enum class Worth : uint8_t { kWaking, kNothing };
  device::EventId record_copy(device::StreamId stream, Worth worth);
  [[nodiscard]] bool has_events() const {
    return !events_.transfers_done.empty() || !events_.left.empty() || !events_.failed.empty() ||
           !events_.lost_blocks.empty() || !events_.found_blocks.empty();
  }
  void trace(const piggyback::AttentionDone& answer);
  [[nodiscard]] Result<Nanos> attend_alone(std::span<const piggyback::AttentionTask> tasks);

  device::Device& device_;
  const Clock& clock_;
  const Shape shape_;
  const size_t longest_table_;
  piggyback::HopCore core_;
  piggyback::Watchdog watchdog_;
  const int32_t stages_worth_waking_;  // that the rows of so many stages are out
  const device::StreamId out_stream_;
  const device::StreamId back_stream_;
  std::unique_ptr<device::Memory> ring_;
  std::unique_ptr<device::Memory> returns_;
  std::unique_ptr<device::Memory> residual_store_;
  const std::shared_ptr<WorkersMemory> host_ = std::make_shared<WorkersMemory>();
  std::unique_ptr<Transfers> transfers_;
  std::unique_ptr<piggyback::HostAttention> attention_;

  std::unordered_map<SequenceId, Offloaded> offloaded_;
  std::deque<Exit> exits_;
  std::deque<Return> returning_;
  std::function<void()> on_event_;
  TierEvents events_;                           // not taken yet
  TierCounts counts_;                           // without what others count
  std::vector<observe::Track*> worker_tracks_;  // empty: none is wanted
  Nanos watched_{0};
  struct SlotTable {
    SequenceId sequence{-1};
    int64_t of_change = -1;
    const int32_t* blocks = nullptr;
  };
  std::vector<SlotTable> slot_tables_;  // as hand_out last found them
  int64_t table_changes_ = 0;           // tables replaced or given up
  Nanos apart_{0};
  bool kept_quiet_ = false;  // copies whose end nobody will be told of
  int32_t sent_stages_ = 0;  // whose rows left since somebody was to be woken for that
  LinkTime return_link_;
  int32_t workers_ = 0;
  std::vector<Lost> lost_;  // attempts that have not come back
  // What is timed alone takes its blocks in turn, so that it does not find them in a cache.
  int64_t probed_blocks_ = 0;
  int64_t written_blocks_ = 0;  // leading ones that were given something to attend to

  // Reused from call to call.
  std::vector<piggyback::ExitRun> exit_runs_;
  std::vector<piggyback::AttentionTask> tasks_;
  std::vector<piggyback::AttentionDone> answers_;
  std::vector<piggyback::HopTask> dropped_;
  std::vector<piggyback::LostAttempt> newly_lost_;
  std::vector<std::vector<piggyback::HopId>> spare_hops_;
  std::vector<std::vector<piggyback::RowRun>> spare_runs_;
};

}  // namespace tandem
