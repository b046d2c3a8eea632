// Runs steps of one model on one device: lays the step's rows out, launches the stages of forward/
// and the sampling, and brings the sampled tokens back. Owns the KV pool, the activations and the
// workspaces of its memory plan.
//
// Threads: engine thread. The completion listener is called on any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "device/device.h"
#include "kernels/kv_layout.h"
#include "model/config.h"
#include "model/weights.h"
#include "observe/timeline.h"
#include "piggyback/attention_host.h"
#include "piggyback/workers/faulty_workers.h"
#include "plan/decisions.h"
#include "plan/step.h"

namespace tandem {

// Faults of the host's workers, for drills.
using HostFaults = piggyback::WorkerFaults;

// The second tier: offloaded sequences, whose attention the host computes.
struct HostTierOptions {
  int64_t kv_bytes = 0;   // of the host's pool; whole blocks of it are used. 0: there is one tier
  int32_t sequences = 0;  // offloaded at a time
  int32_t ring_rows = 0;  // on the way from the accelerator; 0: one for each sequence
  int32_t hop_rows = 0;   // 0: two for each sequence
  int32_t threads = 0;    // attention workers; 0: see use_threads
  // Of prompts that may go straight to the host in a step, over staging layers; 0: none may.
  int32_t staging_tokens = 0;
  int32_t group_stages = 4;  // that are launched together, with visitors chosen just before
  Nanos hop_patience = std::chrono::seconds(2);  // before a worker that does not answer is doubted
  const Clock* clock = nullptr;                  // the machine's time, unless `attention` is given
  Binder* binder = nullptr;
  HostFaults faults = {};
  observe::Timeline* timeline = nullptr;  // gets a track for each worker and one for the binds
  piggyback::AttentionHostFactory attention = {};  // empty: `threads` threads of this process
};

struct ExecutorOptions {
  int32_t max_batched_tokens = 2048;  // rows of a step
  int32_t max_logit_rows = 256;       // samples of a step
  ElementType kv_type = ElementType::kBF16;
  // 0: 32, or more where a block and layer would be under 32 KiB.
  int32_t block_tokens = 0;
  int32_t served_positions = 0;  // the longest sequence; 0: what config.json says
  int64_t kv_bytes = 0;          // of the pool; whole blocks of it are used
  int32_t compute_threads = 0;   // of the device; 0: see use_threads
  int32_t end_tokens = 16;       // that the model has at most; each may be banned from a sample
  bool keep_logits = false;      // of sampled rows, for comparisons; not in the memory plan
  HostTierOptions host = {};
};

// Sets the thread counts that workspaces depend on: the device's compute threads and, if there is
// a second tier, an attention worker for each of the host's CPUs. Keeps counts that are set.
void use_threads(const device::Device& device, ExecutorOptions& options);

// A row of the memory plan.
struct MemoryPlanRow {
  std::string what;
  int64_t bytes = 0;
};

kernels::KvLayout kv_layout_for(const model::ModelConfig& config, const ExecutorOptions& options);

// Everything the executor will allocate besides weights and KV, for the memory plan: also all that
// any step can need. `options` with use_threads.
std::vector<MemoryPlanRow> plan_workspaces(const model::ModelConfig& config,
                                           const model::Weights& weights,
                                           const ExecutorOptions& options);

// Memory that compute threads allocate while they work, if they run on this machine: with one tier.
int64_t thread_workspace_bytes(const model::ModelConfig& config, const model::Weights& weights,
                               const ExecutorOptions& options);

// What a second tier takes beside that, but for KV; options.host.sequences > 0.
struct HostTierPlan {
  std::vector<MemoryPlanRow> accelerator;
  std::vector<MemoryPlanRow> host;
};
HostTierPlan plan_host_tier(const model::ModelConfig& config, const model::Weights& weights,
                            const ExecutorOptions& options);

// How much of the second tier's parts can be timed at once.
struct HostProbeLimits {
  int32_t rows = 0;        // of attention
  int32_t context = 0;     // of a row
  int64_t tokens = 0;      // of all rows; whole blocks count
  int64_t copy_bytes = 0;  // of a copy
};

class ForwardExecutor final : public StepExecutor {
 public:
  // `device` and `weights` must outlive the executor. `on_complete` is called on
  // any thread, also inside calls of this executor, when poll or take_tier_events may have news. It
  // must not take a lock that their caller holds.
  static Result<std::unique_ptr<ForwardExecutor>> create(const model::ModelConfig& config,
                                                         const model::Weights& weights,
                                                         device::Device& device,
                                                         const ExecutorOptions& options,
                                                         std::function<void()> on_complete);
  ~ForwardExecutor() override;

  [[nodiscard]] const ExecutorLimits& limits() const override;
  void launch(const StepInput& input) override;
  [[nodiscard]] bool poll(StepResult& result) override;
  void wait_no_longer() override;
  [[nodiscard]] const Error* failure() const override;
  [[nodiscard]] Nanos next_check(Nanos now) const override;
  void leave(SequenceId offloaded) override;
  [[nodiscard]] TierEvents take_tier_events() override;
  [[nodiscard]] TierCounts tier_counts() const override;
  [[nodiscard]] int32_t next_stage(SequenceId offloaded) const override;

  // For experiments on how far a slow host affects the other tier: its workers finish the tasks
  // they have begun and begin no others. Two tiers only, with attention on threads of this process.
  void freeze_host();
  void thaw_host();
  // Tasks that the workers have not finished.
  [[nodiscard]] int64_t tasks_in_hand() const;

  // Parts of the second tier alone, for profiles: with nothing under way, and with KV that nobody
  // needs any more. They wait for what they time. Attention: of one layer, for `rows` tokens that
  // attend to `context` tokens each, all of them at different places. Errors: a worker does not
  // answer.
  [[nodiscard]] HostProbeLimits probe_limits() const;
  [[nodiscard]] Result<Nanos> time_host_attention(int32_t rows, int32_t context);
  [[nodiscard]] Nanos time_link(TransferKind kind, int64_t bytes);

  // Logits of the last row of each sampled slice of the last finished step, before sampling touched
  // them: [samples, vocabulary]. Empty without ExecutorOptions::keep_logits.
  [[nodiscard]] const std::vector<float>& kept_logits() const;

 private:
  class Impl;
  explicit ForwardExecutor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
