// The largest steps that requests can bring about, on devices that have no byte more than the plan
// says: one tier and two, few threads and many. What they draw is what each sequence draws alone.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "device/open/open.h"
#include "exec/forward_executor.h"
#include "request/sampling_limits.h"
#include "support/forwarding_device.h"
#include "support/random_model.h"
#include "support/step_driver.h"

namespace tandem {
namespace {

using reference::Sequence;
using reference::SequenceMaker;
using reference::Step;

constexpr int32_t kRows = 96;
constexpr int32_t kPlaces = 8;
constexpr int32_t kBlockTokens = 16;
constexpr int32_t kBlocks = 100;
constexpr int32_t kEndTokens = 5;
constexpr int32_t kPromptTokens = 25 * kBlockTokens;  // choices write to blocks of their own
constexpr int32_t kDecodes = 4;

model::ModelConfig worst_config() {
  model::ModelConfig config = reference::small_config();
  config.layers = 2;
  config.hidden = 40;
  config.intermediate = 52;
  config.max_positions = 1024;
  return config;
}

// Has so much memory and no more.
class ExactDevice final : public reference::ForwardingDevice {
 public:
  explicit ExactDevice(std::unique_ptr<device::Device> inner)
      : ForwardingDevice(std::move(inner)) {}
  [[nodiscard]] Result<std::unique_ptr<device::Memory>> allocate(
      const device::MemoryRequest& request) override {
    allocated[request.kind] += request.bytes;
    EXPECT_FALSE(sealed) << request.bytes << " bytes that are not planned";
    return ForwardingDevice::allocate(request);
  }

  std::map<device::MemoryKind, int64_t> allocated;
  bool sealed = false;
};

struct WorstCase {
  int32_t tiers = 1;
  int32_t threads = 2;
};

int64_t sum_of(const std::vector<MemoryPlanRow>& rows) {
  int64_t sum = 0;
  for (const MemoryPlanRow& row : rows) {
    sum += row.bytes;
  }
  return sum;
}

class WorstSteps : public testing::TestWithParam<WorstCase> {
 protected:
  WorstSteps()
      : model_(reference::make_model(worst_config(), ElementType::kBF16, 3)),
        device_(make_device()),
        weights_(reference::pack(model_, ElementType::kBF16, device_)) {
    options_ = {.max_batched_tokens = kRows,
                .max_logit_rows = kPlaces,
                .block_tokens = kBlockTokens,
                .compute_threads = GetParam().threads,
                .end_tokens = kEndTokens};
    const int64_t pool = kv_layout_for(model_.config, options_).block_bytes() * kBlocks;
    options_.kv_bytes = pool;
    if (GetParam().tiers == 2) {
      options_.host = {.kv_bytes = pool,
                       .sequences = kPlaces,
                       .threads = GetParam().threads,
                       .group_stages = 2,
                       .clock = &clock_,
                       .binder = &binder_};
    }
    const auto before = device_.allocated;
    auto created = ForwardExecutor::create(model_.config, weights_, device_, options_, {});
    CHECK(created.ok(), "{}", created.error().message);
    executor_ = std::move(created).value();
    expect_planned(before, pool);
    device_.sealed = true;

    params_.temperature = 0.8F;
    params_.repetition_penalty = 1.3F;
    params_.presence_penalty = 0.5F;
    params_.frequency_penalty = 0.25F;
    params_.logprobs = kernels::kMaxTopLogprobs;
    for (int32_t i = 0; i < kMostLogitBiases; ++i) {
      params_.logit_bias.push_back({i % 75, static_cast<float>(i % 7) * 0.01F});
    }
    for (int32_t i = 0; i < kMostStopTokenIds + kEndTokens; ++i) {
      banned_.push_back(i % 10);
    }
  }

  static std::unique_ptr<device::Device> make_device() {
    if (GetParam().tiers == 1) {
      return std::move(device::make_cpu_device({.threads = GetParam().threads})).value();
    }
    return std::move(device::open({.accelerator = device::AcceleratorSpec{},
                                   .device_memory_bytes = int64_t{64} << 20,
                                   .host_memory_bytes = int64_t{64} << 20}))
        .value();
  }

  void expect_planned(std::map<device::MemoryKind, int64_t> before, int64_t pool) {
    const int64_t on_device =
        device_.allocated[device::MemoryKind::kDevice] - before[device::MemoryKind::kDevice];
    const int64_t on_host = device_.allocated[device::MemoryKind::kHostPinned] -
                            before[device::MemoryKind::kHostPinned];
    const int64_t workspaces = sum_of(plan_workspaces(model_.config, weights_, options_));
    if (GetParam().tiers == 1) {
      EXPECT_EQ(on_device + on_host, workspaces + pool);
    } else {
      const HostTierPlan tier = plan_host_tier(model_.config, weights_, options_);
      EXPECT_EQ(on_device, workspaces + sum_of(tier.accelerator) + pool);
      EXPECT_EQ(on_host, sum_of(tier.host) + pool);
    }
  }

  void set_sampling(Sequence& sequence, uint64_t seed) {
    sequence.params = params_;
    sequence.banned = banned_;
    sequence.seed = seed;
  }

  // All but the last token of the prompt.
  void compute_prompt(Sequence& sequence) {
    while (sequence.computed_tokens + 1 < kPromptTokens) {
      const int32_t tokens = std::min(kRows, kPromptTokens - 1 - sequence.computed_tokens);
      Step step;
      step.add(sequence, tokens, 0);
      step.run(*executor_);
    }
  }

  [[nodiscard]] static std::vector<TokenId> prompt() {
    std::vector<TokenId> tokens;
    for (int32_t i = 0; i < kPromptTokens; ++i) {
      tokens.push_back((3 + 7 * i + i / 11) % 75);
    }
    return tokens;
  }

  // The choices of one prompt, whose blocks they share, with a token each.
  std::vector<Sequence> choices(SequenceMaker& maker) {
    Sequence parent = maker.make(prompt(), kPromptTokens);
    set_sampling(parent, 100);
    compute_prompt(parent);
    Step step;
    step.add(parent, 1, kPlaces);
    const StepResult result = step.run(*executor_);
    std::vector<Sequence> choices;
    for (int32_t i = 0; i < kPlaces; ++i) {
      Sequence& choice = choices.emplace_back(parent);
      choice.id = static_cast<SequenceId>(1000 + i);
      choice.seed += static_cast<uint64_t>(i);
      choice.blocks.push_back(maker.take_block());
      const SampledToken& sampled = result.samples.at(static_cast<size_t>(i));
      EXPECT_EQ(sampled.logprobs->top.size(), static_cast<size_t>(kernels::kMaxTopLogprobs));
      choice.tokens.push_back(sampled.token);
    }
    return choices;
  }

  void decode_together(std::vector<Sequence>& sequences) {
    for (int32_t i = 0; i < kDecodes; ++i) {
      Step step;
      for (Sequence& sequence : sequences) {
        step.add(sequence, 1, 1);
      }
      const StepResult result = step.run(*executor_);
      for (size_t s = 0; s < sequences.size(); ++s) {
        sequences[s].tokens.push_back(result.samples.at(s).token);
      }
    }
  }

  void offload(const std::vector<Sequence>& sequences) {
    StepInput input;
    TierTransfer transfer{.id = 1, .kind = TransferKind::kOffload, .blocks = {}};
    for (int32_t i = 0; i < kBlocks; ++i) {
      transfer.blocks.push_back({static_cast<BlockId>(i), static_cast<BlockId>(i)});
    }
    input.transfers.push_back(transfer);
    run(input);
    while (executor_->take_tier_events().transfers_done.empty()) {
      std::this_thread::yield();
    }
    EXPECT_EQ(sequences.size(), static_cast<size_t>(kPlaces));
  }

  StepResult run(const StepInput& input) {
    executor_->launch(input);
    StepResult result;
    while (!executor_->poll(result)) {
      std::this_thread::yield();
    }
    return result;
  }

  // Each token of every sequence is computed on its way over the host.
  void visit_together(std::vector<Sequence>& sequences) {
    for (int32_t i = 0; i < kDecodes; ++i) {
      StepInput input;
      for (Sequence& one : sequences) {
        const std::span<const TokenId> all(one.tokens);
        input.entering.push_back({.sequence = one.id,
                                  .token = one.tokens.back(),
                                  .position = one.computed_tokens,
                                  .host_table = one.blocks,
                                  .sample = {.sequence = one.id,
                                             .params = &one.params,
                                             .seed = one.seed,
                                             .position = std::ssize(all),
                                             .prompt = all.first(kPromptTokens),
                                             .output = all.subspan(kPromptTokens),
                                             .banned = one.banned}});
      }
      std::map<SequenceId, TokenId> drawn;
      while (drawn.size() < sequences.size()) {
        for (const SampledToken& sampled : run(input).visitors) {
          drawn[sampled.sequence] = sampled.token;
        }
        input.entering.clear();
      }
      for (Sequence& one : sequences) {
        one.tokens.push_back(drawn.at(one.id));
        ++one.computed_tokens;
      }
    }
  }

  const SteadyClock clock_;
  reference::AllBinder binder_;
  const reference::Model model_;
  ExactDevice device_;
  const model::Weights weights_;
  ExecutorOptions options_;
  SamplingParams params_;
  std::vector<TokenId> banned_;
  std::unique_ptr<ForwardExecutor> executor_;
};

TEST_P(WorstSteps, OfManyChoicesWithEveryOption) {
  SequenceMaker maker(executor_->limits());
  std::vector<Sequence> together = choices(maker);
  if (GetParam().tiers == 2) {
    offload(together);
    visit_together(together);
  } else {
    decode_together(together);
  }
  for (const size_t i : {size_t{0}, together.size() - 1}) {
    Sequence alone = maker.make(prompt(), kPromptTokens + 1 + kDecodes);
    set_sampling(alone, together[i].seed);
    compute_prompt(alone);
    std::vector<Sequence> one;
    Step step;
    step.add(alone, 1, 1);
    alone.tokens.push_back(step.run(*executor_).samples.at(0).token);
    one.push_back(std::move(alone));
    decode_together(one);
    EXPECT_EQ(together[i].tokens, one.front().tokens) << "choice " << i;
    for (const TokenId token : std::span(one.front().tokens).subspan(kPromptTokens)) {
      EXPECT_GE(token, 10);  // the others are banned
    }
  }
}

TEST_P(WorstSteps, OfScoredPrompts) {
  SequenceMaker maker(executor_->limits());
  Sequence sequence = maker.make(prompt(), kPromptTokens);
  set_sampling(sequence, 1);
  size_t scored = 0;
  while (sequence.computed_tokens < kPromptTokens) {
    Step step;
    step.add_scored(sequence, std::min(kRows, kPromptTokens - sequence.computed_tokens),
                    kernels::kMaxTopLogprobs);
    const StepResult result = step.run(*executor_);
    scored += result.scored.size();
    for (const LogprobInfo& one : result.scored) {
      EXPECT_EQ(one.top.size(), static_cast<size_t>(kernels::kMaxTopLogprobs));
    }
  }
  EXPECT_EQ(scored, static_cast<size_t>(kPromptTokens - 1));
}

TEST_P(WorstSteps, OfPlacesFullOfTheLongestSequences) {
  // All tables name the same blocks: what is in them does not matter here, how many there are does.
  SequenceMaker maker(executor_->limits());
  const int32_t longest = std::min(model_.config.max_positions, kBlocks * kBlockTokens);
  std::vector<Sequence> sequences;
  std::vector<BlockId> blocks;
  for (int32_t i = 0; i < longest / kBlockTokens; ++i) {
    blocks.push_back(maker.take_block());
  }
  for (int32_t i = 0; i < kPlaces; ++i) {
    Sequence& one = sequences.emplace_back();
    one.id = static_cast<SequenceId>(i + 1);
    one.tokens.assign(static_cast<size_t>(longest), 12 + i);
    one.prompt_tokens = longest / 2;
    one.computed_tokens = longest - 1;
    one.blocks = blocks;
    set_sampling(one, 1);
  }
  Step step;
  for (Sequence& one : sequences) {
    step.add(one, 1, 1);
  }
  EXPECT_EQ(step.run(*executor_).samples.size(), static_cast<size_t>(kPlaces));
}

INSTANTIATE_TEST_SUITE_P(Tiers, WorstSteps,
                         testing::Values(WorstCase{1, 2}, WorstCase{1, 64}, WorstCase{2, 2},
                                         WorstCase{2, 64}),
                         [](const auto& param) {
                           return fmt::format("{}Tier{}Threads", param.param.tiers,
                                              param.param.threads);
                         });

}  // namespace
}  // namespace tandem
