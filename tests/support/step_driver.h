// Test help: a device with a model and an executor on it, and sequences that are driven through it
// step by step, by hand, with blocks handed out in a scrambled order.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/cpu/placement.h"
#include "device/device.h"
#include "exec/forward_executor.h"
#include "kernels/kernels.h"
#include "plan/decisions.h"
#include "support/random_model.h"

namespace tandem::reference {

struct RigOptions {
  ElementType type = ElementType::kF32;             // of weights and KV
  Quantization quantization = Quantization::kNone;  // of the layers' weights
  int32_t threads = 2;
  std::optional<kernels::Isa> isa = {};
  int32_t max_batched_tokens = 512;
  int32_t max_logit_rows = 16;
  int32_t blocks = 64;
  int32_t block_tokens = 32;
  int32_t served_positions = 0;
  std::optional<device::Topology> topology = {};  // absent: this machine's
  const device::PagePlacer* placer = nullptr;     // null: the kernel
  int64_t two_tier_memory_bytes = 0;              // of each tier; 0: one tier, the cpu device
  int32_t host_blocks = 0;               // of the second tier's pool; 0: everything stays resident
  HostTierOptions host = {};             // its kv_bytes are host_blocks
  std::string accelerator_options = {};  // as --emulate-accelerator takes them
  // Stands between the executor and the device that it would get.
  std::function<std::unique_ptr<device::Device>(std::unique_ptr<device::Device>)> wrap = {};
};

// Every visitor that is ready joins.
class AllBinder final : public Binder {
 public:
  void bind(const BindView& view, BindDecision& decision) override {
    decision.visitors.assign(view.ready.begin(), view.ready.end());
  }
};

struct Rig {
  std::unique_ptr<device::Device> device;
  std::unique_ptr<model::Weights> weights;  // address stays when the rig moves
  std::unique_ptr<ForwardExecutor> executor;
};

Rig make_rig(const Model& model, const RigOptions& options);
// For weights that come from elsewhere; `load` gets the device.
Rig make_rig(const model::ModelConfig& config, const RigOptions& options,
             const std::function<model::Weights(device::Device&)>& load);

struct Sequence {
  SequenceId id{};
  std::vector<TokenId> tokens;  // prompt, then what was sampled
  int64_t prompt_tokens = 0;
  int32_t computed_tokens = 0;
  std::vector<BlockId> blocks;
  SamplingParams params = {};
  std::vector<TokenId> banned = {};
  uint64_t seed = 1;
};

// Hands out sequences with greedy sampling and blocks of their own for `total_tokens`.
class SequenceMaker {
 public:
  explicit SequenceMaker(const ExecutorLimits& limits);
  Sequence make(const std::vector<TokenId>& prompt, int32_t total_tokens);
  BlockId take_block();

 private:
  const ExecutorLimits limits_;
  int64_t sequences_ = 0;
  std::vector<BlockId> free_;
};

// One step under construction; the sequences must outlive run().
class Step {
 public:
  // The next `tokens` tokens of the sequence, and `samples` draws after the last of them.
  void add(Sequence& sequence, int32_t tokens, int32_t samples);
  // As add, and the tokens that follow its rows are scored, with the `top` most likely.
  void add_scored(Sequence& sequence, int32_t tokens, int32_t top);
  void copy(BlockId source, BlockId target) { input_.copies.push_back({source, target}); }
  // Runs it to its end and counts the tokens as computed.
  StepResult run(ForwardExecutor& executor);

 private:
  StepInput input_;
  std::deque<std::vector<SampleSpec>> specs_;
  std::vector<std::pair<Sequence*, int32_t>> parts_;
};

// Computes the sequence's tokens up to its end in chunks of `chunk_tokens`, draws one token after
// the last, and returns that row's logits.
std::vector<float> prefill(ForwardExecutor& executor, Sequence& sequence, int32_t chunk_tokens);

// Appends the sampled token, computes it, and so on `count` times; returns the rows of logits.
std::vector<float> decode(ForwardExecutor& executor, Sequence& sequence, int32_t count);

}  // namespace tandem::reference
