// The second tier of an executor: owns its parts and wires them together.
//
//   OffloadedTokens   block tables and samples of the sequences on the host
//   HopQueues         what a step binds visitors from (the binding side of the hop core)
//   HopCarrier        rows and tasks between device, host and hop core
//   Transfers         blocks between the two KV pools
//   StagingLayers     KV of prompts that go straight to the host, layer by layer
//   AttentionHost     attends: threads of this process, or what HostTierOptions::attention makes
//
// Threads: engine thread only. Nothing blocks but create and the end of life.
#pragma once

#include <cstddef>
#include <memory>

#include "base/result.h"
#include "device/device.h"
#include "exec/completion_notifier.h"
#include "exec/forward/stages.h"
#include "exec/forward_executor.h"
#include "exec/host_tier/hop_carrier.h"
#include "exec/host_tier/hop_memory.h"
#include "exec/host_tier/hop_queues.h"
#include "exec/host_tier/host_probe.h"
#include "exec/host_tier/offloaded_tokens.h"
#include "exec/host_tier/staging_layers.h"
#include "exec/host_tier/transfers.h"
#include "model/config.h"
#include "model/weights.h"
#include "piggyback/attention_host.h"
#include "piggyback/core/hop_core.h"
#include "piggyback/workers/attention_workers.h"
#include "plan/step.h"

namespace tandem {

class HostTier {
 public:
  // All but `options`, which only create reads, must outlive the tier; *options.host.clock too.
  struct Environment {
    const model::ModelConfig& config;
    const model::Weights& weights;
    device::Device& device;
    const ExecutorOptions& options;
    std::byte* device_kv = nullptr;  // the start of the accelerator's pool
    std::shared_ptr<CompletionNotifier> notifier;
  };
  static Result<std::unique_ptr<HostTier>> create(const Environment& environment);
  ~HostTier();  // waits for the device's copies and for the workers
  HostTier(const HostTier&) = delete;
  HostTier& operator=(const HostTier&) = delete;

  // Adds the accelerator's ends of the queues to the buffers of the stages.
  void place(StageBuffers& buffers) const;

  void enter(const OffloadedToken& token);
  void move_lane(const LaneMove& move);
  void leave(SequenceId sequence);
  void start(const TierTransfer& transfer) { transfers_->start(transfer); }
  // Takes what is complete and starts what follows from it.
  void pump();
  // As of the last pump.
  [[nodiscard]] bool has_events() const;
  [[nodiscard]] TierEvents take_events();
  [[nodiscard]] TierCounts counts() const;
  // What was done for offloaded sequences since the last call, but not for probes.
  [[nodiscard]] HostWork take_work();

  [[nodiscard]] HopQueues& queues() { return queues_; }
  [[nodiscard]] HopCarrier& carrier() { return *carrier_; }
  [[nodiscard]] const OffloadedTokens& tokens() const { return tokens_; }
  // Null: no prompt goes straight to the host.
  [[nodiscard]] StagingLayers* staging() { return staging_.get(); }
  // Attention must be on threads of this process.
  [[nodiscard]] piggyback::AttentionWorkers& workers();
  [[nodiscard]] HostProbe make_probe();

 private:
  HostTier(const Environment& environment, HopMemory memory);
  Status start_attention(const Environment& environment);
  void gather_events();

  device::Device& device_;
  const Clock& clock_;
  const std::shared_ptr<CompletionNotifier> notifier_;
  const int32_t block_tokens_;
  const int32_t threads_;
  const int64_t token_bytes_;  // K and V of one token in one layer
  const HopMemory memory_;
  piggyback::HopCore core_;
  OffloadedTokens tokens_;
  HopQueues queues_;
  std::unique_ptr<Transfers> transfers_;
  std::unique_ptr<StagingLayers> staging_;  // null: no prompt goes straight to the host
  std::unique_ptr<piggyback::AttentionHost> attention_;
  piggyback::AttentionWorkers* workers_ = nullptr;  // attention_, if it is threads of this process
  std::unique_ptr<HopCarrier> carrier_;
  TierEvents events_;  // not taken yet
  piggyback::AttentionHostCounts taken_;
  bool worked_ = false;  // for offloaded sequences since the last take_work
};

}  // namespace tandem
