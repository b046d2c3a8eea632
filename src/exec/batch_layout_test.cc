#include "exec/batch_layout.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace tandem {
namespace {

std::vector<BlockId> blocks(std::initializer_list<int32_t> ids) {
  std::vector<BlockId> out;
  for (const int32_t id : ids) {
    out.push_back(static_cast<BlockId>(id));
  }
  return out;
}

const ExecutorLimits kLimits = {.max_batched_tokens = 64,
                                .max_logit_rows = 8,
                                .total_blocks = 50,
                                .block_tokens = 16,
                                .staging_blocks = 4};

// Lays a step out and reads it where the "device" would: at other addresses than it was written.
class BatchLayout : public testing::Test {
 protected:
  const StepInputs& lay_out(const StepInput& input) {
    const StepSize size = measure_step(input, histories_);
    const auto bytes = static_cast<size_t>(staging_bytes(size, kLimits));
    host_.assign(bytes + 64, std::byte{0});
    device_.assign(bytes + 64, std::byte{0xee});
    std::byte* host = align(host_);
    std::byte* device = align(device_);
    inputs_ = lay_out_step(input, size, {.limits = kLimits, .vocabulary = 100}, histories_,
                           {host, device});
    std::copy(host, host + bytes, device);
    std::fill(host_.begin(), host_.end(), std::byte{0xdd});
    return inputs_;
  }
  StepSize measure(const StepInput& input) { return measure_step(input, histories_); }

 private:
  static std::byte* align(std::vector<std::byte>& bytes) {
    return bytes.data() + (64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64) % 64;
  }
  std::vector<std::byte> host_;
  std::vector<std::byte> device_;
  StepInputs inputs_;
  HistoryBlocks histories_{50 + 4, 16};
};

std::vector<int32_t> history_of(const kernels::SampleRow& row, int64_t begin, int64_t end) {
  std::vector<int32_t> tokens;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t size = row.history_block_tokens;
    tokens.push_back(row.history[row.history_blocks[i / size] * size + i % size]);
  }
  return tokens;
}

std::vector<TokenId> tokens_from(TokenId first, int32_t count) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < count; ++i) {
    tokens.push_back((first + i) % 100);
  }
  return tokens;
}

TEST_F(BatchLayout, ScoredTokensNameTheRowBeforeThem) {
  const std::vector<TokenId> first = {10, 11};
  const std::vector<TokenId> second = {20, 21, 22};
  const std::vector<TokenId> after = {21, 22};
  const auto table = blocks({7});
  StepInput input;
  input.slices = {{.sequence = SequenceId{1}, .tokens = first, .block_table = table},
                  {.sequence = SequenceId{2},
                   .tokens = second,
                   .block_table = table,
                   .scored = after,
                   .scored_top = 99}};
  const StepInputs& inputs = lay_out(input);
  ASSERT_EQ(inputs.scored_count, 2);
  EXPECT_EQ(inputs.sample_count, 0);
  EXPECT_EQ(inputs.scored_rows[0], 2);
  EXPECT_EQ(inputs.scored_rows[1], 3);
  EXPECT_EQ(inputs.scored[0].given, 21);
  EXPECT_EQ(inputs.scored[1].given, 22);
  EXPECT_EQ(inputs.scored[0].logprobs, kernels::kMaxTopLogprobs);
}

TEST_F(BatchLayout, RowsFollowTheSlicesAndTheirBlockTables) {
  const std::vector<TokenId> first = {10, 11, 12};
  const std::vector<TokenId> second = {20};
  const auto first_table = blocks({7, 3});
  const auto second_table = blocks({9, 1, 4});
  StepInput input;
  input.slices = {{SequenceId{1}, first, 14, first_table, {}},
                  {SequenceId{2}, second, 40, second_table, {}}};
  const StepInputs& inputs = lay_out(input);

  ASSERT_EQ(inputs.rows, 4);
  const auto expect = [](const int32_t* values, std::vector<int32_t> expected) {
    EXPECT_EQ(std::vector<int32_t>(values, values + expected.size()), expected);
  };
  expect(inputs.ids, {10, 11, 12, 20});
  expect(inputs.positions, {14, 15, 16, 40});
  expect(inputs.blocks, {7, 7, 3, 4});
  expect(inputs.slots, {14, 15, 0, 8});
  ASSERT_EQ(inputs.pooled.shape.slices, 2);
  EXPECT_EQ(inputs.pooled.slices[1].row_begin, 3);
  EXPECT_EQ(inputs.pooled.slices[1].row_count, 1);
  EXPECT_EQ(inputs.pooled.slices[1].first_position, 40);
  expect(inputs.pooled.slices[0].block_table, {7, 3});
  expect(inputs.pooled.slices[1].block_table, {9, 1, 4});
  EXPECT_EQ(inputs.sample_count, 0);
  EXPECT_FALSE(inputs.every_row_is_sampled_in_order);
}

TEST_F(BatchLayout, SamplesNameTheLastRowOfTheirSlice) {
  const std::vector<TokenId> tokens = {1, 2, 3};
  const auto table = blocks({0});
  const SamplingParams params;
  const std::vector<SampleSpec> one(1, {.sequence = SequenceId{1}, .params = &params});
  const std::vector<SampleSpec> three(3, {.sequence = SequenceId{2}, .params = &params});
  StepInput input;
  input.slices = {{SequenceId{1}, std::span(tokens).subspan(0, 1), 0, table, one},
                  {SequenceId{2}, tokens, 0, table, three}};
  const StepInputs& inputs = lay_out(input);
  ASSERT_EQ(inputs.sample_count, 4);
  EXPECT_EQ(std::vector<int32_t>(inputs.sampled_rows, inputs.sampled_rows + 4),
            (std::vector<int32_t>{0, 3, 3, 3}));
  EXPECT_FALSE(inputs.every_row_is_sampled_in_order);
}

TEST_F(BatchLayout, AStepOfDecodesIsSampledInOrder) {
  const std::vector<TokenId> token = {1};
  const auto table = blocks({0});
  const SamplingParams params;
  const std::vector<SampleSpec> one(1, {.sequence = SequenceId{1}, .params = &params});
  StepInput input;
  input.slices = {{SequenceId{1}, token, 0, table, one}, {SequenceId{2}, token, 5, table, one}};
  EXPECT_TRUE(lay_out(input).every_row_is_sampled_in_order);
  input.slices.push_back({SequenceId{3}, token, 5, table, {}});
  EXPECT_FALSE(lay_out(input).every_row_is_sampled_in_order);
}

TEST_F(BatchLayout, SamplingParametersAndHistoriesAreCopied) {
  const std::vector<TokenId> token = {1};
  const auto table = blocks({0});
  std::vector<TokenId> prompt = {5, 6};
  std::vector<TokenId> output = {7, 8, 9};
  std::vector<TokenId> banned = {2};
  SamplingParams params;
  params.temperature = 0.5F;
  params.top_p = 0.9F;
  params.top_k = 40;
  params.min_p = 0.1F;
  params.repetition_penalty = 1.1F;
  params.presence_penalty = 0.2F;
  params.frequency_penalty = 0.3F;
  params.logprobs = 500;
  params.logit_bias = {{.token = 3, .bias = -1.0F}, {.token = 4, .bias = 2.0F}};
  const std::vector<SampleSpec> spec = {{.sequence = SequenceId{1},
                                         .params = &params,
                                         .seed = 77,
                                         .position = 5,
                                         .prompt = prompt,
                                         .output = output,
                                         .banned = banned}};
  StepInput input;
  input.slices = {{SequenceId{1}, token, 0, table, spec}};
  const kernels::SampleRow row = lay_out(input).samples[0];
  prompt.assign(2, 0);
  output.assign(3, 0);
  banned.assign(1, 0);
  params.logit_bias.clear();
  EXPECT_EQ(row.temperature, 0.5F);
  EXPECT_EQ(row.top_p, 0.9F);
  EXPECT_EQ(row.top_k, 40);
  EXPECT_EQ(row.min_p, 0.1F);
  EXPECT_EQ(row.repetition_penalty, 1.1F);
  EXPECT_EQ(row.presence_penalty, 0.2F);
  EXPECT_EQ(row.frequency_penalty, 0.3F);
  EXPECT_EQ(row.logprobs, kernels::kMaxTopLogprobs);
  EXPECT_EQ(row.seed, 77U);
  EXPECT_EQ(row.position, 5);
  ASSERT_EQ(row.prompt_tokens, 2);
  ASSERT_EQ(row.output_tokens, 3);
  EXPECT_EQ(history_of(row, 0, 5), (std::vector<int32_t>{5, 6, 7, 8, 9}));
  ASSERT_EQ(row.banned_count, 1);
  EXPECT_EQ(row.banned[0], 2);
  ASSERT_EQ(row.bias_count, 2);
  EXPECT_EQ(row.biases[1].token, 4);
  EXPECT_EQ(row.biases[1].bias, 2.0F);
}

TEST_F(BatchLayout, HistoriesThatNobodyReadsAreNotCopied) {
  const std::vector<TokenId> token = {1};
  const auto table = blocks({0, 4, 9, 2, 7});
  const std::vector<TokenId> prompt = tokens_from(0, 40);
  const std::vector<TokenId> output = tokens_from(50, 39);
  SamplingParams params;
  const std::vector<SampleSpec> spec = {
      {.sequence = SequenceId{1}, .params = &params, .prompt = prompt, .output = output}};
  StepInput input;
  input.slices = {{SequenceId{1}, token, 78, table, spec}};
  EXPECT_EQ(measure(input).history_tokens, 0);
  EXPECT_EQ(measure(input).history_tables, 0);
  params.presence_penalty = 0.5F;
  EXPECT_EQ(measure(input).history_tokens, 3 * 16);  // from the block in which the output begins
  EXPECT_EQ(history_of(lay_out(input).samples[0], 40, 79), output);
  params.repetition_penalty = 1.5F;
  EXPECT_EQ(measure(input).history_tokens, 5 * 16);
  EXPECT_EQ(history_of(lay_out(input).samples[0], 0, 40), prompt);
  EXPECT_EQ(history_of(lay_out(input).samples[0], 40, 79), output);
}

TEST_F(BatchLayout, BlocksThatSequencesShareAreThereOnce) {
  // Three choices of a prompt of 37 tokens: two full blocks are shared, of the third each has a
  // copy; and another prompt that begins alike, with the first block from the cache.
  const std::vector<TokenId> prompt = tokens_from(0, 37);
  std::vector<TokenId> other = tokens_from(0, 16);
  other.push_back(99);
  const std::vector<TokenId> token = {1};
  SamplingParams params;
  params.repetition_penalty = 1.5F;
  const std::vector<std::vector<BlockId>> tables = {blocks({3, 8, 10}), blocks({3, 8, 11}),
                                                    blocks({3, 8, 12, 13}), blocks({3, 20})};
  const std::vector<std::vector<TokenId>> outputs = {
      tokens_from(60, 2), tokens_from(70, 9), tokens_from(80, 15), {}};
  std::vector<std::vector<SampleSpec>> specs;
  for (size_t i = 0; i < tables.size(); ++i) {
    specs.push_back({{.sequence = static_cast<SequenceId>(i),
                      .params = &params,
                      .prompt = i < 3 ? prompt : other,
                      .output = outputs[i]}});
  }
  StepInput input;
  for (size_t i = 0; i < tables.size(); ++i) {
    const auto known = static_cast<int32_t>((i < 3 ? 37U : 17U) + outputs[i].size());
    input.slices.push_back({static_cast<SequenceId>(i), token, known - 1, tables[i], specs[i]});
  }
  const StepSize size = measure(input);
  EXPECT_EQ(size.history_tokens, 7 * 16);
  EXPECT_EQ(size.history_tables, 3 + 3 + 4 + 2);
  const StepInputs& inputs = lay_out(input);
  for (size_t i = 0; i < tables.size(); ++i) {
    std::vector<int32_t> expected = i < 3 ? prompt : other;
    const auto begin = static_cast<int64_t>(expected.size());
    expected.insert(expected.end(), outputs[i].begin(), outputs[i].end());
    const kernels::SampleRow& row = inputs.samples[i];
    EXPECT_EQ(row.prompt_tokens, begin);
    EXPECT_EQ(history_of(row, 0, static_cast<int64_t>(expected.size())), expected) << i;
  }
  // The next step knows nothing of this one.
  input.slices.resize(1);
  EXPECT_EQ(measure(input).history_tokens, 3 * 16);
}

TEST_F(BatchLayout, ASharedBlockThatOneHasWrittenFurtherIsCompleteForBoth) {
  const std::vector<TokenId> prompt = tokens_from(0, 3);
  const std::vector<TokenId> output = tokens_from(30, 5);
  const std::vector<TokenId> token = {1};
  SamplingParams params;
  params.repetition_penalty = 0.5F;
  const auto table = blocks({6});
  const std::vector<SampleSpec> first = {
      {.sequence = SequenceId{1}, .params = &params, .prompt = prompt}};
  const std::vector<SampleSpec> second = {
      {.sequence = SequenceId{2}, .params = &params, .prompt = prompt, .output = output}};
  StepInput input;
  input.slices = {{SequenceId{1}, token, 2, table, first},
                  {SequenceId{2}, token, 7, table, second}};
  const StepInputs& inputs = lay_out(input);
  EXPECT_EQ(history_of(inputs.samples[0], 0, 3), prompt);
  EXPECT_EQ(history_of(inputs.samples[1], 0, 3), prompt);
  EXPECT_EQ(history_of(inputs.samples[1], 3, 8), output);
}

TEST_F(BatchLayout, OfATableOnlyWhatTheSliceReachesIsCopied) {
  const std::vector<TokenId> tokens = tokens_from(0, 5);
  const auto table = blocks({1, 2, 3, 4});
  StepInput input;
  input.slices = {{SequenceId{1}, tokens, 14, table, {}}};
  EXPECT_EQ(measure(input).table_blocks, 2);
}

using BatchLayoutDeathTest = BatchLayout;

TEST_F(BatchLayoutDeathTest, AnEnginesMistakeStopsTheProcess) {
  const std::vector<TokenId> wrong_token = {100};
  const std::vector<TokenId> token = {1};
  const auto table = blocks({0});
  const auto wrong_block = blocks({50});
  StepInput input;
  input.slices = {{SequenceId{1}, wrong_token, 0, table, {}}};
  EXPECT_DEATH(lay_out(input), "token 100 of a vocabulary of 100");
  input.slices = {{SequenceId{1}, token, 0, wrong_block, {}}};
  EXPECT_DEATH(lay_out(input), "block 50 of 50");
  input.slices = {{SequenceId{1}, token, 16, table, {}}};
  EXPECT_DEATH(lay_out(input), "1 blocks of 16 tokens for 17 tokens");
  const std::vector<TokenId> many(65, 1);
  input.slices = {{SequenceId{1}, many, 0, table, {}}};
  EXPECT_DEATH(lay_out(input), "65 rows");
}

TEST_F(BatchLayout, StepsOfABucketHaveTheirArraysAtTheSameAddresses) {
  const auto table = blocks({7, 8, 9});
  const std::vector<TokenId> tokens = tokens_from(1, 8);
  const SamplingParams params;
  const std::vector<SampleSpec> samples(2, {.sequence = SequenceId{1}, .params = &params});
  const auto offsets = [&](size_t rows, size_t banned) {
    const std::vector<TokenId> bans(banned, 3);
    std::vector<SampleSpec> own = samples;
    own.front().banned = bans;
    StepInput input;
    input.slices = {{SequenceId{1}, std::span(tokens).first(rows), 0, table, own}};
    const StepInputs& inputs = lay_out(input);
    const auto* start = reinterpret_cast<const std::byte*>(inputs.ids);
    std::vector<int64_t> found;
    for (const void* array : std::initializer_list<const void*>{
             inputs.positions, inputs.blocks, inputs.slots, inputs.sampled_rows,
             inputs.pooled.slices, inputs.samples}) {
      found.push_back(static_cast<const std::byte*>(array) - start);
    }
    return found;
  };
  EXPECT_EQ(offsets(5, 0), offsets(8, 40));
}

TEST_F(BatchLayout, TheHostKnowsTheShapeOfTheAttention) {
  const std::vector<TokenId> tokens = tokens_from(1, 3);
  const std::vector<BlockId> table(50, BlockId{1});
  StepInput input;
  input.slices = {{SequenceId{1}, tokens, 0, table, {}},
                  {SequenceId{2}, std::span(tokens).first(1), 600, table, {}}};
  const StepInputs& inputs = lay_out(input);
  EXPECT_EQ(inputs.pooled.shape.rows, 4);
  EXPECT_EQ(inputs.pooled.shape.slices, 2);
  EXPECT_EQ(inputs.pooled.shape.max_context, 601);
  EXPECT_EQ(inputs.pooled.shape.splits, 1 + 3);
  EXPECT_NE(inputs.pooled.host_slices, inputs.pooled.slices);
}

// They have places of their own, 0, 1, .., and rows of their own behind the others.
TEST_F(BatchLayout, SlicesThatGoStraightToTheHostTakeBlocksOfTheStagingLayers) {
  const std::vector<TokenId> tokens = tokens_from(1, 40);
  const auto table = blocks({7, 3});
  const auto first_host = blocks({30, 12, 13});
  const auto second_host = blocks({5});
  SamplingParams params;
  params.repetition_penalty = 1.5F;
  const std::span<const TokenId> all(tokens);
  const std::vector<SampleSpec> samples = {
      {.sequence = SequenceId{2}, .params = &params, .prompt = all},
      {.sequence = SequenceId{3}, .params = &params, .prompt = all.first(3)}};
  StepInput input;
  input.slices = {{.sequence = SequenceId{1},
                   .tokens = all.first(2),
                   .first_position = 16,
                   .block_table = table},
                  {.sequence = SequenceId{2},
                   .tokens = all,
                   .block_table = first_host,
                   .samples = std::span(samples).first(1),
                   .tier = Tier::kHost},
                  {.sequence = SequenceId{3},
                   .tokens = all.first(3),
                   .block_table = second_host,
                   .samples = std::span(samples).last(1),
                   .tier = Tier::kHost}};
  const StepInputs& inputs = lay_out(input);
  EXPECT_EQ(inputs.rows, 45);
  EXPECT_EQ(inputs.pooled.shape.rows, 2);
  EXPECT_EQ(inputs.pooled.shape.slices, 1);
  EXPECT_EQ(inputs.staged.shape.rows, 43);
  EXPECT_EQ(inputs.staged.shape.slices, 2);
  EXPECT_EQ(inputs.staged.shape.max_context, 40);
  EXPECT_EQ(inputs.staged.slices, inputs.pooled.slices + 1);
  EXPECT_EQ(inputs.staged.slices[0].row_begin, 0);
  EXPECT_EQ(inputs.staged.slices[1].row_begin, 40);
  const auto expect = [](const int32_t* values, std::vector<int32_t> expected) {
    EXPECT_EQ(std::vector<int32_t>(values, values + expected.size()), expected);
  };
  expect(inputs.staged.slices[0].block_table, {0, 1, 2});
  expect(inputs.staged.slices[1].block_table, {3});
  EXPECT_EQ(inputs.blocks[0], 3);
  EXPECT_EQ(inputs.blocks[2], 0);
  EXPECT_EQ(inputs.blocks[2 + 16], 1);
  EXPECT_EQ(inputs.blocks[42], 3);
  EXPECT_EQ(inputs.sampled_rows[0], 41);
  EXPECT_EQ(inputs.sampled_rows[1], 44);
  EXPECT_EQ(history_of(inputs.samples[0], 0, 40), tokens);
  EXPECT_EQ(history_of(inputs.samples[1], 0, 3), tokens_from(1, 3));
}

}  // namespace
}  // namespace tandem
