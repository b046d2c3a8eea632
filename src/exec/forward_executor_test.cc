// Against a forward pass in double precision, and against itself: the numbers of a sequence must
// not depend on how it is cut into steps or on what else runs.
#include "exec/forward_executor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "support/forwarding_device.h"
#include "support/random_model.h"
#include "support/step_driver.h"
#include "support/wide_attention.h"

namespace tandem {
namespace {

using reference::decode;
using reference::make_model;
using reference::make_rig;
using reference::prefill;
using reference::Rig;
using reference::RigOptions;
using reference::Sequence;
using reference::SequenceMaker;
using reference::Step;
using reference::WideAttention;

// Odd sizes everywhere: nothing is a multiple of anything that a kernel likes.
model::ModelConfig odd_config() {
  model::ModelConfig config;
  config.layers = 3;
  config.hidden = 40;
  config.intermediate = 52;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.vocabulary = 75;
  config.max_positions = 1024;
  config.rms_epsilon = 1e-5F;
  config.tied_embeddings = true;
  return config;
}

// Biases, an untied head, heads wider than hidden / heads, llama3 RoPE.
model::ModelConfig biased_config() {
  model::ModelConfig config = odd_config();
  config.architecture = model::Architecture::kQwen2;
  config.layers = 2;
  config.hidden = 64;
  config.intermediate = 96;
  config.heads = 4;
  config.kv_heads = 4;
  config.head_dim = 34;
  config.vocabulary = 130;
  config.qkv_bias = true;
  config.tied_embeddings = false;
  config.rope_scaling = model::Llama3Rope{.factor = 8.0,
                                          .low_frequency_factor = 1.0,
                                          .high_frequency_factor = 4.0,
                                          .original_max_positions = 64};
  return config;
}

// Norms of the heads, and YaRN, which also scales what is rotated.
model::ModelConfig head_norm_config() {
  model::ModelConfig config = odd_config();
  config.architecture = model::Architecture::kQwen3;
  config.head_dim = 34;
  config.heads = 4;
  config.qk_norm = true;
  config.rope_scaling =
      model::YarnRope{.factor = 4.0, .attention_factor = 1.2, .original_max_positions = 64};
  return config;
}

// A short window, a long one and none.
model::ModelConfig window_config() {
  model::ModelConfig config = odd_config();
  config.architecture = model::Architecture::kQwen3;
  config.windows = {37, 0, 200};
  return config;
}

std::vector<TokenId> prompt_of(int32_t tokens, int32_t start, const model::ModelConfig& config) {
  std::vector<TokenId> prompt;
  for (int32_t i = 0; i < tokens; ++i) {
    prompt.push_back((start + i * i * 7 + i * 3) % config.vocabulary);
  }
  return prompt;
}

void append(std::vector<float>& all, const std::vector<float>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

struct AccuracyCase {
  std::string name;
  model::ModelConfig config;
  ElementType type = ElementType::kF32;
  kernels::Isa isa = kernels::Isa::kRef;
  Quantization quantization = Quantization::kNone;
};

std::vector<AccuracyCase> accuracy_cases() {
  std::vector<AccuracyCase> cases;
  for (const kernels::Isa isa : kernels::available_isas()) {
    for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
      const std::string suffix = fmt::format("_{}_{}", element_name(type), kernels::isa_name(isa));
      cases.push_back({"odd" + suffix, odd_config(), type, isa});
      cases.push_back({"biased" + suffix, biased_config(), type, isa});
      cases.push_back({"window" + suffix, window_config(), type, isa});
      cases.push_back({"head_norm" + suffix, head_norm_config(), type, isa});
    }
    for (const Quantization quantization :
         {Quantization::kInt8, Quantization::kInt4, Quantization::kInt4Symmetric}) {
      const int kind = static_cast<int>(quantization);
      const std::string name = fmt::format("quantised_{}_{}", kind, kernels::isa_name(isa));
      cases.push_back({name, odd_config(), ElementType::kBF16, isa, quantization});
    }
  }
  return cases;
}

class Accuracy : public testing::TestWithParam<AccuracyCase> {};

TEST_P(Accuracy, LogitsAgreeWithADoublePrecisionForwardPass) {
  const AccuracyCase& own = GetParam();
  const reference::Model model = make_model(own.config, own.type, 11);
  const Rig rig =
      make_rig(model, {.type = own.type, .quantization = own.quantization, .isa = own.isa});
  SequenceMaker maker(rig.executor->limits());
  // Across the boundary at 256 tokens where attention is split.
  Sequence sequence = maker.make(prompt_of(250, 3, own.config), 270);
  std::vector<float> logits = prefill(*rig.executor, sequence, 512);
  append(logits, decode(*rig.executor, sequence, 12));

  sequence.tokens.pop_back();  // drawn, not computed
  const std::vector<double> all =
      reference::forward(reference::dequantized(model, own.quantization), sequence.tokens);
  const auto from = static_cast<ptrdiff_t>(249 * own.config.vocabulary);
  const std::vector<double> expected(all.begin() + from, all.end());
  EXPECT_LT(reference::worst_row_error(logits, expected, own.config.vocabulary),
            own.type == ElementType::kF32 ? 2e-5 : 2e-2);
}

INSTANTIATE_TEST_SUITE_P(ForwardExecutor, Accuracy, testing::ValuesIn(accuracy_cases()),
                         [](const auto& own) { return own.param.name; });

struct SamenessCase {
  std::string name;
  model::ModelConfig config;
  ElementType type = ElementType::kF32;
  Quantization quantization = Quantization::kNone;
};

class Sameness : public testing::TestWithParam<SamenessCase> {
 protected:
  Sameness() : model_(make_model(GetParam().config, GetParam().type, 5)) {}
  [[nodiscard]] Rig rig(int32_t threads) const {
    return make_rig(
        model_,
        {.type = GetParam().type, .quantization = GetParam().quantization, .threads = threads});
  }
  // Prefill in chunks, then decode; alone.
  [[nodiscard]] std::vector<float> alone(const Rig& on, int32_t chunk_tokens) const {
    SequenceMaker maker(on.executor->limits());
    Sequence sequence = maker.make(prompt_of(300, 1, model_.config), 310);
    std::vector<float> logits = prefill(*on.executor, sequence, chunk_tokens);
    append(logits, decode(*on.executor, sequence, 5));
    return logits;
  }
  const reference::Model model_;
};

TEST_P(Sameness, AChunkedPrefillEqualsAWholeOneBitForBit) {
  const Rig on = rig(2);
  const std::vector<float> whole = alone(on, 512);
  for (const int32_t chunk_tokens : {1, 7, 64, 256, 299}) {
    EXPECT_EQ(alone(on, chunk_tokens), whole) << "in chunks of " << chunk_tokens;
  }
}

TEST_P(Sameness, TheNumberOfThreadsChangesNothing) {
  const std::vector<float> one = alone(rig(1), 100);
  EXPECT_EQ(alone(rig(2), 100), one);
  EXPECT_EQ(alone(rig(5), 100), one);
}

TEST_P(Sameness, AnAcceleratorWithMemoryOfItsOwnChangesNothing) {
  const Rig two_tiers = make_rig(model_, {.type = GetParam().type,
                                          .quantization = GetParam().quantization,
                                          .two_tier_memory_bytes = int64_t{256} << 20});
  EXPECT_EQ(alone(two_tiers, 100), alone(rig(2), 100));
}

TEST_P(Sameness, AttentionResultsOfAnotherTypeAreCastAndChangeNothing) {
  for (const int64_t bytes : {int64_t{0}, int64_t{256} << 20}) {
    WideAttention* device = nullptr;
    const Rig wide = make_rig(model_, {.type = GetParam().type,
                                       .quantization = GetParam().quantization,
                                       .two_tier_memory_bytes = bytes,
                                       .wrap = [&device](std::unique_ptr<device::Device> inner) {
                                         auto wrapped =
                                             std::make_unique<WideAttention>(std::move(inner));
                                         device = wrapped.get();
                                         return std::unique_ptr<device::Device>(std::move(wrapped));
                                       }});
    EXPECT_EQ(alone(wide, 100), alone(rig(2), 100));
    EXPECT_EQ(device->casts > 0, GetParam().type != ElementType::kF32);
  }
}

TEST_P(Sameness, CompanyChangesNothing) {
  const Rig on = rig(3);
  const std::vector<float> expected = alone(on, 512);
  const auto vocabulary = static_cast<ptrdiff_t>(model_.config.vocabulary);

  SequenceMaker maker(on.executor->limits());
  Sequence own = maker.make(prompt_of(300, 1, model_.config), 310);
  std::vector<Sequence> others;
  for (int32_t i = 0; i < 6; ++i) {
    others.push_back(maker.make(prompt_of(20 + 30 * i, 9 + i, model_.config), 220));
  }
  std::vector<float> logits;
  // In each step some others prefill a chunk, some decode; our sequence comes in the middle.
  while (logits.size() < expected.size()) {
    Step step;
    ptrdiff_t row = -1;
    ptrdiff_t rows = 0;
    std::vector<Sequence*> drawn;
    const auto add = [&](Sequence& sequence, int32_t chunk_tokens) {
      const int32_t left = static_cast<int32_t>(sequence.tokens.size()) - sequence.computed_tokens;
      const int32_t tokens = std::min(left, chunk_tokens);
      step.add(sequence, tokens, tokens == left ? 1 : 0);
      if (tokens == left) {
        row = &sequence == &own ? rows : row;
        ++rows;
        drawn.push_back(&sequence);
      }
    };
    for (size_t i = 0; i < others.size(); ++i) {
      if (i == 3) {
        add(own, 113);
      }
      add(others[i], 17);
    }
    const StepResult result = step.run(*on.executor);
    ASSERT_EQ(result.samples.size(), drawn.size());
    for (size_t i = 0; i < drawn.size(); ++i) {
      EXPECT_EQ(result.samples[i].sequence, drawn[i]->id);
      drawn[i]->tokens.push_back(result.samples[i].token);
    }
    if (row >= 0) {
      const auto begin = on.executor->kept_logits().begin() + row * vocabulary;
      logits.insert(logits.end(), begin, begin + vocabulary);
    }
  }
  EXPECT_EQ(logits, expected);
}

TEST_P(Sameness, ACopiedBlockServesLikeTheOriginal) {
  const Rig on = rig(2);
  SequenceMaker maker(on.executor->limits());
  Sequence original = maker.make(prompt_of(50, 2, model_.config), 64);
  prefill(*on.executor, original, 512);
  Sequence fork = original;
  fork.blocks.back() = maker.take_block();
  Step step;
  step.copy(original.blocks.back(), fork.blocks.back());
  step.add(fork, 1, 1);
  step.run(*on.executor);
  const std::vector<float> forked = on.executor->kept_logits();
  EXPECT_EQ(decode(*on.executor, original, 1), forked);
}

// More scored rows than logit rows, beside a sequence that decodes.
TEST_P(Sameness, ScoresOfAPromptAgreeWithTheReferenceAndDoNotDependOnChunks) {
  const Rig on = rig(2);
  const std::vector<TokenId> prompt = prompt_of(120, 1, model_.config);
  const std::vector<double> expected =
      reference::forward(reference::dequantized(model_, GetParam().quantization), prompt);
  const auto vocabulary = static_cast<size_t>(model_.config.vocabulary);
  std::vector<LogprobInfo> whole;
  SequenceMaker maker(on.executor->limits());
  Sequence company = maker.make(prompt_of(30, 5, model_.config), 60);
  prefill(*on.executor, company, 512);
  for (const int32_t chunk_tokens : {120, 7, 50}) {
    Sequence own = maker.make(prompt, 121);
    std::vector<LogprobInfo> scores;
    TokenId next = -1;
    while (own.computed_tokens < 120) {
      Step step;
      step.add(company, 1, 1);
      step.add_scored(own, std::min(chunk_tokens, 120 - own.computed_tokens), 3);
      const StepResult result = step.run(*on.executor);
      scores.insert(scores.end(), result.scored.begin(), result.scored.end());
      company.tokens.push_back(result.samples.at(0).token);
      next = result.samples.back().token;
    }
    ASSERT_EQ(scores.size(), 119U);
    EXPECT_EQ(next, std::max_element(
                        on.executor->kept_logits().end() - static_cast<ptrdiff_t>(vocabulary),
                        on.executor->kept_logits().end()) -
                        (on.executor->kept_logits().end() - static_cast<ptrdiff_t>(vocabulary)));
    for (size_t i = 0; whole.empty() && i < scores.size(); ++i) {
      const double* row = expected.data() + i * vocabulary;
      double total = 0;
      for (size_t j = 0; j < vocabulary; ++j) {
        total += std::exp(row[j]);
      }
      EXPECT_NEAR(scores[i].logprob, row[prompt[i + 1]] - std::log(total),
                  GetParam().type == ElementType::kF32 ? 1e-3 : 0.2)
          << "token " << i + 1;
      EXPECT_EQ(scores[i].top.size(), 3U);
      EXPECT_GE(scores[i].rank, 1);
    }
    if (whole.empty()) {
      whole = scores;
    }
    for (size_t i = 0; i < scores.size(); ++i) {
      EXPECT_EQ(scores[i].logprob, whole[i].logprob) << "in chunks of " << chunk_tokens;
      EXPECT_EQ(scores[i].rank, whole[i].rank);
      EXPECT_EQ(scores[i].top[2].token, whole[i].top[2].token);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    ForwardExecutor, Sameness,
    testing::Values(SamenessCase{"f32", odd_config(), ElementType::kF32},
                    SamenessCase{"bf16", odd_config(), ElementType::kBF16},
                    SamenessCase{"int8", odd_config(), ElementType::kBF16, Quantization::kInt8},
                    SamenessCase{"int4", odd_config(), ElementType::kBF16, Quantization::kInt4},
                    SamenessCase{"window_f32", window_config(), ElementType::kF32},
                    SamenessCase{"window_bf16", window_config(), ElementType::kBF16}),
    [](const auto& own) { return own.param.name; });

// Sampling as the executor hands it to the kernels.
class Sampling : public testing::Test {
 protected:
  Sampling()
      : model_(make_model(odd_config(), ElementType::kF32, 21)),
        rig_(make_rig(model_, {})),
        maker_(rig_.executor->limits()) {}

  Sequence sequence() { return maker_.make(prompt_of(10, 4, model_.config), 32); }
  SampledToken sample(Sequence& sequence) {
    Step step;
    step.add(sequence, static_cast<int32_t>(sequence.tokens.size()) - sequence.computed_tokens, 1);
    return std::move(step.run(*rig_.executor).samples.at(0));
  }
  TokenId greedy_token() {
    Sequence plain = sequence();
    return sample(plain).token;
  }

  const reference::Model model_;
  const Rig rig_;
  SequenceMaker maker_;
};

TEST_F(Sampling, SeveralDrawsOfOneRowDifferBySeedOnly) {
  Sequence own = sequence();
  own.params.temperature = 3.0F;
  Step step;
  step.add(own, 10, 8);
  const StepResult together = step.run(*rig_.executor);
  ASSERT_EQ(together.samples.size(), 8U);
  const std::vector<float>& logits = rig_.executor->kept_logits();
  const auto vocabulary = static_cast<size_t>(model_.config.vocabulary);
  ASSERT_EQ(logits.size(), 8 * vocabulary);
  bool differ = false;
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(std::equal(logits.begin(), logits.begin() + static_cast<ptrdiff_t>(vocabulary),
                           logits.begin() + static_cast<ptrdiff_t>(i * vocabulary)));
    differ = differ || together.samples[i].token != together.samples[0].token;
  }
  EXPECT_TRUE(differ);
  for (size_t i = 0; i < 8; ++i) {
    Sequence again = sequence();
    again.params.temperature = 3.0F;
    again.seed = own.seed + i;
    EXPECT_EQ(sample(again).token, together.samples[i].token);
  }
}

TEST_F(Sampling, BiasesAndBansReachTheRow) {
  const TokenId usual = greedy_token();
  Sequence banned = sequence();
  banned.banned = {usual};
  EXPECT_NE(sample(banned).token, usual);
  const TokenId wanted = (usual + 1) % model_.config.vocabulary;
  Sequence biased = sequence();
  biased.params.logit_bias = {{.token = wanted, .bias = 100.0F}};
  EXPECT_EQ(sample(biased).token, wanted);
}

TEST_F(Sampling, PenaltiesSeePromptAndOutput) {
  const TokenId usual = greedy_token();
  Sequence repeated = sequence();
  repeated.params.repetition_penalty = 1e6F;
  // The token would be chosen but for standing in the prompt.
  Sequence in_prompt = maker_.make({usual, usual, usual}, 32);
  in_prompt.params.repetition_penalty = 1e6F;
  EXPECT_NE(sample(in_prompt).token, usual);
  Sequence in_output = sequence();
  in_output.tokens.push_back(usual);
  const TokenId next = sample(in_output).token;
  in_output.tokens.push_back(next);
  in_output.tokens.push_back(next);
  in_output.computed_tokens = 0;
  in_output.params.presence_penalty = 2.0F;
  in_output.params.frequency_penalty = 2.0F;
  Sequence without = in_output;
  without.params.presence_penalty = 0.0F;
  without.params.frequency_penalty = 0.0F;
  without.params.logprobs = 20;
  in_output.params.logprobs = 20;
  const SampledToken plain = sample(without);
  const SampledToken penalised = sample(in_output);
  ASSERT_TRUE(plain.logprobs && penalised.logprobs);
  EXPECT_NE(plain.logprobs->top.front().logprob, penalised.logprobs->top.front().logprob);
}

TEST_F(Sampling, LogprobsComeOnlyWhenAsked) {
  Sequence silent = sequence();
  EXPECT_EQ(sample(silent).logprobs, nullptr);
  Sequence chosen_only = sequence();
  chosen_only.params.logprobs = 0;
  const SampledToken chosen = sample(chosen_only);
  ASSERT_NE(chosen.logprobs, nullptr);
  EXPECT_TRUE(chosen.logprobs->top.empty());
  EXPECT_EQ(chosen.logprobs->rank, 1);
  Sequence with_top = sequence();
  with_top.params.logprobs = 5;
  const SampledToken top = sample(with_top);
  ASSERT_EQ(top.logprobs->top.size(), 5U);
  EXPECT_EQ(top.logprobs->top.front().token, top.token);
  EXPECT_LT(top.logprobs->logprob, 0.0F);
}

TEST_F(Sampling, AHistoryLongerThanPlannedMakesTheStagingGrow) {
  std::vector<TokenId> prompt = prompt_of(900, 4, model_.config);
  Sequence plain = maker_.make(prompt, 928);
  const std::vector<float> expected = prefill(*rig_.executor, plain, 450);
  Step step;
  Sequence again = plain;  // its last token once more, for sixteen draws with a history each
  again.params.repetition_penalty = 1.5F;
  again.tokens.pop_back();
  again.computed_tokens = 899;
  step.add(again, 1, 16);
  const StepResult result = step.run(*rig_.executor);
  const std::vector<float>& logits = rig_.executor->kept_logits();
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), logits.begin()));
  for (const SampledToken& sample : result.samples) {
    EXPECT_EQ(sample.token, result.samples.front().token);
  }
}

}  // namespace
}  // namespace tandem
