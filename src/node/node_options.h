// What a node is told: the model, its policy, its memory and its device. Plain data. What an
// operator can set has a row in option_table.cc.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "device/cpu/cpu_device.h"
#include "device/open/open.h"
#include "engine/engine.h"
#include "exec/forward_executor.h"
#include "latency/profile.h"
#include "node/device_choice.h"
#include "node/memory_flags.h"
#include "scheduler/policy.h"

namespace tandem {

// Whether policies that can tell refuse latency-sensitive requests whose targets are out of reach.
enum class AdmissionMode : uint8_t { kOff, kOn };

// Where the profile of step times comes from.
struct ProfileOptions {
  std::filesystem::path file;          // empty: one in the cache
  std::filesystem::path cache_folder;  // empty: nothing is kept
  latency::TimeModel model = latency::TimeModel::kModular;
  std::string text;           // instead of a file: a record brings its own
  int32_t error_percent = 0;  // a drill: predictions are wrong by so much
};

// Of the free memory; the rest is for the page cache and others.
inline constexpr double kMemoryShare = 0.8;

// How prompts get to the host that are to decode there, under policies that choose.
enum class PromptsToHost : uint8_t {
  kStaged,   // layer by layer in the step that computes them, over staging layers
  kOffload,  // all layers from blocks of the accelerator, behind that step
};

struct NodeOptions {
  std::filesystem::path model;
  std::vector<std::string> served_names;  // empty: the folder's name
  std::string policy;                     // empty or "auto": see policy_choice.h
  bool targets_given = false;             // some requests will have targets: for "auto"
  PolicyOptions policy_options;           // a step budget of 0 is chosen by measuring
  ProfileOptions profile;                 // of step times
  std::string budget_model;  // the model that a step budget in policy_options was found for, as
  std::string budget_model_digest;  // of shape_digest; both empty: it is for any
  AdmissionMode admission = AdmissionMode::kOn;
  device::CpuDeviceOptions device;  // its isa: the kernels, on both tiers; products is filled in
  std::filesystem::path kernels_folder;  // where measured kernels are kept; empty: nowhere
  std::optional<ElementType> dtype;      // absent: the checkpoint's (F16 as bf16)
  std::optional<ElementType> kv_dtype;   // absent: the weights', bf16 if they are quantised
  // Of the layers' weights, at load; nullopt: as the files have them.
  std::optional<Quantization> quantization;
  Activations activations = Activations::kPlain;  // kInt8 needs quantised weights
  int32_t max_model_len = 0;   // tokens of a sequence; 0: what model and memory allow
  int32_t max_num_seqs = 256;  // running sequences
  int32_t max_num_batched_tokens = 2048;
  int32_t block_tokens = 0;  // 0: chosen from the shape
  int64_t memory_bytes = 0;  // weights, workspaces and KV; 0: a share of what is free, where
                             // there are several memory nodes on those that compute
  std::optional<double> memory_share;  // that share; absent: kMemoryShare
  MemoryFlags memory_flags;
  // Two tiers: an accelerator with memory_bytes of its own. Absent: the CPUs alone.
  std::optional<device::AcceleratorSpec> accelerator;
  // `accelerator` and `host_memory_bytes` are for the GPU that --device auto prefers. Opening the
  // model decides whether it serves, and resets this.
  std::optional<AutomaticGpu> automatic_gpu;
  HostFaults host_faults;         // planted into the host's workers, for drills
  int64_t host_memory_bytes = 0;  // of the second tier: KV of offloaded sequences, queues of hops
  PromptsToHost prompts_to_host = PromptsToHost::kStaged;
  int32_t group_stages = 4;                      // launched together, visitors chosen just before
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

}  // namespace tandem
