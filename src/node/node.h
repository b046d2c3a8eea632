// A node that serves one model with one engine: opens the folder, plans memory, loads weights, runs
// the engine's thread. open is quick (small files only) so that a server can listen and say
// "loading" while load works.
//
// Threads: open and load on one thread; frontend() from any; metrics_text and config_json from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "device/cpu/cpu_device.h"
#include "device/emulated/emulated_accelerator.h"
#include "engine/recorder.h"
#include "exec/forward_executor.h"
#include "latency/corrected_model.h"
#include "latency/profile.h"
#include "model/model_folder.h"
#include "model/weights.h"
#include "node/engine_thread.h"
#include "node/late_binder.h"
#include "node/memory_plan.h"
#include "node/step_bell.h"
#include "node/time_profile.h"
#include "observe/engine_metrics.h"
#include "observe/timeline.h"
#include "scheduler/policies/registry.h"

namespace tandem {

// Whether policies that can tell refuse latency-sensitive requests whose targets are out of reach.
enum class AdmissionMode : uint8_t { kOff, kOn };

struct NodeOptions {
  std::filesystem::path model;
  std::vector<std::string> served_names;  // empty: the folder's name
  std::string policy;                     // empty or "auto": see policy_choice.h
  bool targets_given = false;             // some requests will have targets: for "auto"
  PolicyOptions policy_options;           // its beliefs are filled in from the profile; a step
                                          // budget of 0 of sarathi is chosen by measuring
  ProfileOptions profile;                 // of step times
  AdmissionMode admission = AdmissionMode::kOn;
  device::CpuDeviceOptions device;  // its isa: the kernels, on both tiers; products is filled in
  std::filesystem::path kernels_folder;  // where measured kernels are kept; empty: nowhere
  std::optional<ElementType> dtype;      // absent: the checkpoint's (F16 as bf16)
  std::optional<ElementType> kv_dtype;   // absent: the weights'
  int32_t max_model_len = 0;             // tokens of a sequence; 0: what model and memory allow
  int32_t max_num_seqs = 256;            // running sequences
  int32_t max_num_batched_tokens = 2048;
  int32_t block_tokens = 0;   // 0: chosen from the shape
  int64_t memory_bytes = 0;   // weights, workspaces and KV; 0: memory_share of what is free, where
                              // there are several memory nodes on those that compute
  double memory_share = 0.8;  // the rest is for the page cache and others
  // Two tiers: an accelerator played by some of the cores, with memory_bytes of its own.
  std::optional<device::EmulationSpec> emulation;
  int64_t host_memory_bytes = 0;  // of the second tier: KV of offloaded sequences, queues of hops
  int32_t group_stages = 4;       // launched together, visitors chosen just before
  Nanos hop_patience = std::chrono::seconds(2);  // before a host worker is doubted
  std::string timeline_out;         // Chrome trace of streams, workers and binds; empty: none
  int64_t kv_blocks = 0;            // 0: as many as memory and use allow
  int64_t max_queue = 1024;         // waiting latency-sensitive requests
  int64_t max_queue_flex = 1024;    // waiting best-effort requests
  std::vector<TokenId> end_tokens;  // the tokenizer's, which end answers as the folder's own do
  PrefixCaching prefix_caching = PrefixCaching::kOn;
  uint64_t seed = 0;
  bool vllm_metrics = true;
  std::string record_out;  // file for replay; empty: none
  int64_t record_limit_bytes = int64_t{1} << 30;
};

// The parts that serve and replay have in common: everything below the engine.
struct ModelOnDevice {
  model::ModelFolder folder;
  std::unique_ptr<observe::Timeline> timeline;  // two tiers, when asked for
  std::unique_ptr<device::Device> device;
  device::EmulatedAccelerator* emulated = nullptr;  // the device, where it is one
  bool hollow = false;                              // and its answers are made up
  MemoryPlan plan;
  ElementType dtype = ElementType::kBF16;
  ElementType kv_dtype = ElementType::kBF16;
  std::string kernels_from;  // who chose them
  model::Weights weights;
  std::unique_ptr<ForwardExecutor> executor;
  // Of step times; absent where none is wanted, or none was found yet.
  std::optional<latency::Profile> profile;
  std::unique_ptr<latency::CorrectedModel> step_times;
  std::string policy_name;             // never "auto"
  std::unique_ptr<StepPolicy> policy;  // null: it needs step times, which are not known yet
  std::unique_ptr<LateBinder> binder;  // of visitors; two tiers only
};

// Small files, device and plan; no weights yet. With memory nodes named, the calling thread and
// what it starts later stay on these. Afterwards `options.policy` names the policy.
Result<ModelOnDevice> open_model(NodeOptions& options, const Clock& clock);
// The same for a shape that needs no files: a hollow device has no use for weights.
Result<ModelOnDevice> plan_model(model::ModelFolder folder, NodeOptions& options,
                                 const Clock& clock);
// Weights (none for a hollow device) and executor. `on_step` is called on a device thread after
// each step.
Status load_model(ModelOnDevice& parts,
                  const std::function<void(const model::LoadProgress&)>& progress,
                  std::function<void()> on_step);
// After load_model: step times and a step budget are measured where they are wanted and not known,
// and the policy is made. The completion listener must ring `bell` meanwhile. `options` are the
// same as before but for the budget.
Status complete_model(NodeOptions& options, ModelOnDevice& parts, StepBell& bell,
                      const Clock& clock, const latency::ProfileProgress& progress);
EngineConfig engine_config(const NodeOptions& options, const ModelOnDevice& parts);

class Node {
 public:
  static Result<std::unique_ptr<Node>> open(NodeOptions options, const Clock& clock);
  ~Node();

  // Loads and begins to serve; the Frontend turns from loading to ready, or to failed.
  Status load(const std::function<void(const model::LoadProgress&)>& progress,
              const latency::ProfileProgress& profile_progress);

  [[nodiscard]] EngineThread& frontend() { return *thread_; }
  [[nodiscard]] const ModelOnDevice& parts() const { return parts_; }
  [[nodiscard]] std::string metrics_text() const;
  [[nodiscard]] std::string config_json() const;  // the effective configuration, one JSON object

 private:
  Node(NodeOptions options, ModelOnDevice parts, const Clock& clock);
  Status start_recording();

  // Fixed once open, but for what load measures; effective_config_json is the only reader of that.
  NodeOptions options_;
  mutable std::mutex measured_mutex_;
  const Clock& clock_;
  ModelOnDevice parts_;
  std::unique_ptr<observe::EngineMetrics> metrics_;
  std::unique_ptr<Recorder> recorder_;
  StepBell bell_;  // while step times are measured
  std::atomic<bool> measuring_{false};
  std::unique_ptr<Admission> admission_;
  std::unique_ptr<EngineThread> thread_;  // last: its engine uses all of the above
};

// The effective configuration as a JSON object; also the head of a record file.
std::string effective_config_json(const NodeOptions& options, const ModelOnDevice& parts);

}  // namespace tandem
