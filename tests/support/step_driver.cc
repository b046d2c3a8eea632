#include "support/step_driver.h"

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "base/check.h"
#include "device/open/open.h"

namespace tandem::reference {

namespace {

std::unique_ptr<device::Device> make_device(const RigOptions& options) {
  if (options.two_tier_memory_bytes > 0) {
    auto accelerator =
        device::accelerator_spec(device::kEmulatedBackend, options.accelerator_options);
    CHECK(accelerator.ok(), "{}", accelerator.error().message);
    auto device = device::open({.cpu = {.isa = options.isa},
                                .accelerator = std::move(*accelerator),
                                .device_memory_bytes = options.two_tier_memory_bytes,
                                .host_memory_bytes = options.two_tier_memory_bytes});
    CHECK(device.ok(), "{}", device.error().message);
    return std::move(device).value();
  }
  auto device = device::make_cpu_device({.threads = options.threads,
                                         .isa = options.isa,
                                         .topology = options.topology,
                                         .placer = options.placer});
  CHECK(device.ok(), "{}", device.error().message);
  return std::move(device).value();
}

}  // namespace

Rig make_rig(const model::ModelConfig& config, const RigOptions& options,
             const std::function<model::Weights(device::Device&)>& load) {
  Rig rig{.device = make_device(options), .weights = nullptr, .executor = nullptr};
  if (options.wrap) {
    rig.device = options.wrap(std::move(rig.device));
  }
  rig.weights = std::make_unique<model::Weights>(load(*rig.device));
  ExecutorOptions executor{.max_batched_tokens = options.max_batched_tokens,
                           .max_logit_rows = options.max_logit_rows,
                           .kv_type = options.type,
                           .block_tokens = options.block_tokens,
                           .served_positions = options.served_positions,
                           .keep_logits = true};
  executor.kv_bytes = kv_layout_for(config, executor).block_bytes() * options.blocks;
  executor.host = options.host;
  executor.host.kv_bytes = kv_layout_for(config, executor).block_bytes() * options.host_blocks;
  auto created = ForwardExecutor::create(config, *rig.weights, *rig.device, executor, {});
  CHECK(created.ok(), "{}", created.error().message);
  rig.executor = std::move(created).value();
  return rig;
}

Rig make_rig(const Model& model, const RigOptions& options) {
  return make_rig(model.config, options, [&](device::Device& device) {
    return pack(model, options.type, device, options.quantization);
  });
}

SequenceMaker::SequenceMaker(const ExecutorLimits& limits) : limits_(limits) {
  for (int32_t i = 0; i < static_cast<int32_t>(limits.total_blocks); ++i) {
    free_.push_back(static_cast<BlockId>(i));
  }
  std::shuffle(free_.begin(), free_.end(), std::mt19937(7));
}

BlockId SequenceMaker::take_block() {
  CHECK(!free_.empty(), "the test needs more blocks");
  const BlockId block = free_.back();
  free_.pop_back();
  return block;
}

Sequence SequenceMaker::make(const std::vector<TokenId>& prompt, int32_t total_tokens) {
  Sequence sequence{.id = static_cast<SequenceId>(++sequences_),
                    .tokens = prompt,
                    .prompt_tokens = static_cast<int64_t>(prompt.size())};
  sequence.params.temperature = 0.0F;
  for (int32_t tokens = 0; tokens < total_tokens; tokens += limits_.block_tokens) {
    sequence.blocks.push_back(take_block());
  }
  return sequence;
}

void Step::add(Sequence& sequence, int32_t tokens, int32_t samples) {
  const std::span<const TokenId> all(sequence.tokens);
  const auto prompt = static_cast<size_t>(sequence.prompt_tokens);
  auto& specs = specs_.emplace_back();
  for (int32_t i = 0; i < samples; ++i) {
    specs.push_back({.sequence = sequence.id,
                     .params = &sequence.params,
                     .seed = sequence.seed + static_cast<uint64_t>(i),
                     .position = static_cast<int64_t>(sequence.tokens.size()),
                     .prompt = all.subspan(0, prompt),
                     .output = all.subspan(prompt),
                     .banned = sequence.banned});
  }
  input_.slices.push_back({.sequence = sequence.id,
                           .tokens = all.subspan(static_cast<size_t>(sequence.computed_tokens),
                                                 static_cast<size_t>(tokens)),
                           .first_position = sequence.computed_tokens,
                           .block_table = sequence.blocks,
                           .samples = specs});
  parts_.emplace_back(&sequence, tokens);
}

void Step::add_scored(Sequence& sequence, int32_t tokens, int32_t top) {
  const auto known = static_cast<int32_t>(sequence.tokens.size());
  const int32_t first = sequence.computed_tokens;
  add(sequence, tokens, first + tokens == known ? 1 : 0);
  StepSlice& slice = input_.slices.back();
  slice.scored = std::span<const TokenId>(sequence.tokens)
                     .subspan(static_cast<size_t>(first) + 1,
                              static_cast<size_t>(std::min(tokens, known - 1 - first)));
  slice.scored_top = top;
}

StepResult Step::run(ForwardExecutor& executor) {
  executor.launch(input_);
  StepResult result;
  while (!executor.poll(result)) {
    std::this_thread::yield();
  }
  for (const auto& [sequence, tokens] : parts_) {
    sequence->computed_tokens += tokens;
  }
  return result;
}

std::vector<float> prefill(ForwardExecutor& executor, Sequence& sequence, int32_t chunk_tokens) {
  const auto end = static_cast<int32_t>(sequence.tokens.size());
  while (sequence.computed_tokens < end) {
    const int32_t tokens = std::min(chunk_tokens, end - sequence.computed_tokens);
    const bool last = sequence.computed_tokens + tokens == end;
    Step step;
    step.add(sequence, tokens, last ? 1 : 0);
    const StepResult result = step.run(executor);
    if (last) {
      sequence.tokens.push_back(result.samples.at(0).token);
    }
  }
  return executor.kept_logits();
}

std::vector<float> decode(ForwardExecutor& executor, Sequence& sequence, int32_t count) {
  std::vector<float> logits;
  for (int32_t i = 0; i < count; ++i) {
    Step step;
    step.add(sequence, 1, 1);
    sequence.tokens.push_back(step.run(executor).samples.at(0).token);
    logits.insert(logits.end(), executor.kept_logits().begin(), executor.kept_logits().end());
  }
  return logits;
}

}  // namespace tandem::reference
