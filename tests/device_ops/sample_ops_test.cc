// Sampling on a device against the host's reference kernels: the same tokens for the same seeds.
#include <algorithm>
#include <cmath>

#include "device_under_test.h"
#include "machine.h"

namespace tandem::device {
namespace {

using kernels::Random;
using kernels::SampleResult;
using kernels::SampleRow;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class SampleOps : public testing::Test {
 protected:
  SampleOps() { under_test_.clear(); }
  DeviceUnderTest& under_test_ = DeviceUnderTest::get();
  const kernels::Kernels& reference_ = kernels::table_of(kernels::Isa::kRef);
  Random random_{8};
};

// Rows of many options; `on_device` says where their pointers lead.
struct Rows {
  static constexpr int64_t kRows = 96;     // more than the CUDA back end works on at a time
  static constexpr int32_t kHistory = 64;  // tokens, two blocks of 32

  explicit Rows(Random& random, int64_t vocabulary)
      : history(random_tokens(random, vocabulary)),
        blocks({1, 0}),
        biases({{3, 1.5F}, {7, -2.0F}, {-1, 100.0F}, {9, -kInfinity}}),
        banned({5, 1 << 30}) {}

  static std::vector<int32_t> random_tokens(Random& random, int64_t vocabulary) {
    std::vector<int32_t> tokens(kHistory);
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>(kernels::pick(random, 0, i % 2 == 0 ? 9 : vocabulary - 1));
    }
    return tokens;
  }

  [[nodiscard]] std::vector<SampleRow> make(bool on_device) {
    std::vector<SampleRow> rows(kRows);
    for (size_t i = 0; i < rows.size(); ++i) {
      SampleRow& row = rows[i];
      row.temperature = i % 4 == 0 ? 0.0F : (i % 4 == 1 ? 0.7F : 1.3F);
      row.top_k = i % 3 == 0 ? 40 : (i % 3 == 1 ? 0 : 1500);
      row.top_p = i % 5 < 2 ? 0.9F : 1.0F;
      row.min_p = i % 7 == 3 ? 0.05F : 0.0F;
      row.seed = i * 12345;
      row.position = static_cast<int64_t>(i);
      row.logprobs = i % 2 == 0 ? static_cast<int32_t>(i % 21) : -1;
      row.given = i == 17 ? 12 : -1;
      row.repetition_penalty = i % 6 == 1 ? 1.2F : 1.0F;
      row.presence_penalty = i % 6 == 2 ? 0.5F : 0.0F;
      row.frequency_penalty = i % 6 == 3 ? 0.3F : 0.0F;
      row.history = on_device ? history.device() : history.host.data();
      row.history_blocks = on_device ? blocks.device() : blocks.host.data();
      row.history_block_tokens = 32;
      row.prompt_tokens = 40;
      row.output_tokens = 20;
      row.biases = on_device ? biases.device() : biases.host.data();
      row.bias_count = i % 2 == 0 ? 4 : 0;
      row.banned = on_device ? banned.device() : banned.host.data();
      row.banned_count = i % 3 == 0 ? 2 : 0;
    }
    return rows;
  }

  Both<int32_t> history;
  Both<int32_t> blocks;
  Both<kernels::TokenBias> biases;
  Both<int32_t> banned;
};

TEST_F(SampleOps, EveryOptionDrawsWhatTheHostDraws) {
  for (const int64_t vocabulary : {int64_t{33}, int64_t{4001}, int64_t{128256}}) {
    under_test_.clear();
    Rows rows(random_, vocabulary);
    const int64_t count = vocabulary > 100000 ? 24 : (vocabulary > 1000 ? 48 : Rows::kRows);
    const int64_t stride = vocabulary + 5;
    Both<float> logits(count * stride);
    std::normal_distribution<float> normal(0.0F, 3.0F);
    for (float& logit : logits.host) {
      logit = normal(random_);
    }
    logits.host[static_cast<size_t>(20 * stride)] = NAN;
    logits.copy_in();
    const Both<SampleRow> specs(rows.make(true));
    const Both<SampleResult> results(count);
    const Both<int32_t> tokens(count);
    under_test_.run(SampleOp{.logits = logits.device(),
                             .stride = stride,
                             .vocabulary = vocabulary,
                             .rows = specs.device(),
                             .results = results.device(),
                             .row_count = count,
                             .tokens = tokens.device()});
    const std::vector<SampleRow> own = rows.make(false);
    std::vector<SampleResult> wanted(own.size());
    reference_.sample({.logits = logits.host.data(),
                       .stride = stride,
                       .vocabulary = vocabulary,
                       .rows = own.data(),
                       .results = wanted.data(),
                       .row_count = count},
                      0, count);
    const std::vector<SampleResult> got = results.result();
    const std::vector<int32_t> side_by_side = tokens.result();
    EXPECT_EQ(got[20].token, -1) << "a NaN";
    for (size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "row " << i << " of " << vocabulary);
      EXPECT_EQ(got[i].token, wanted[i].token);
      EXPECT_EQ(side_by_side[i], got[i].token);
      EXPECT_NEAR(got[i].logprob, wanted[i].logprob, 1e-5);
      EXPECT_EQ(got[i].rank, wanted[i].rank);
      ASSERT_EQ(got[i].top_count, wanted[i].top_count);
      for (int32_t t = 0; t < got[i].top_count; ++t) {
        EXPECT_EQ(got[i].top_tokens[t], wanted[i].top_tokens[t]);
        EXPECT_NEAR(got[i].top_logprobs[t], wanted[i].top_logprobs[t], 1e-5);
      }
    }
  }
}

TEST_F(SampleOps, GreedyRowsTakeTheirHighestWithTheHintAndWithout) {
  constexpr int64_t kRows = 5;
  constexpr int64_t kVocabulary = 3001;
  Both<float> logits(kRows * kVocabulary);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  std::vector<int32_t> highest;
  for (int64_t row = 0; row < kRows; ++row) {
    const auto begin = logits.host.begin() + row * kVocabulary;
    std::generate_n(begin, kVocabulary, [&] { return normal(random_); });
    highest.push_back(static_cast<int32_t>(std::max_element(begin, begin + kVocabulary) - begin));
  }
  logits.host[0] = NAN;
  highest[0] = -1;
  const Both<SampleRow> specs(std::vector<SampleRow>(kRows, {.temperature = 0.0F}));
  for (const bool greedy : {true, false}) {
    const Both<SampleResult> results(kRows);
    const Both<int32_t> tokens(kRows);
    logits.copy_in();
    under_test_.run(SampleOp{.logits = logits.device(),
                             .stride = kVocabulary,
                             .vocabulary = kVocabulary,
                             .rows = specs.device(),
                             .results = results.device(),
                             .row_count = kRows,
                             .tokens = tokens.device(),
                             .greedy = greedy});
    EXPECT_EQ(tokens.result(), highest);
    const std::vector<SampleResult> got = results.result();
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].token, highest[i]);
      EXPECT_EQ(got[i].top_count, 0);
    }
  }
}

// Logits that are hard to cut: ties, one token alone, a broken row.
enum class Logits { kEqual, kSteps, kOne, kNone, kInfinite, kSteep };

std::vector<float> logits_of(Logits kind, int64_t vocabulary, Random& random) {
  std::vector<float> logits(static_cast<size_t>(vocabulary), 1.25F);
  std::normal_distribution<float> normal(0.0F, kind == Logits::kSteep ? 40.0F : 2.0F);
  for (float& logit : logits) {
    if (kind == Logits::kSteps) {
      logit = std::round(normal(random) * 2.0F) / 2.0F;
    } else if (kind == Logits::kSteep) {
      logit = normal(random);
    } else if (kind == Logits::kOne || kind == Logits::kNone) {
      logit = -kInfinity;
    }
  }
  if (kind == Logits::kOne) {
    logits[static_cast<size_t>(vocabulary - 2)] = -3.0F;
  } else if (kind == Logits::kInfinite) {
    logits.back() = kInfinity;
  }
  return logits;
}

std::vector<SampleRow> cuts() {
  const SampleRow with_logprobs{.temperature = 0.0F, .logprobs = 20};
  return {{.temperature = 0.0F},
          with_logprobs,
          {.temperature = 1.0F, .seed = 1},
          {.temperature = 0.5F, .top_k = 50, .seed = 2},
          {.temperature = 2.0F, .top_p = 0.5F, .seed = 3, .logprobs = 5},
          {.temperature = 1.0F, .top_p = 0.95F, .top_k = 30000, .seed = 4},
          {.temperature = 1.0F, .min_p = 0.2F, .seed = 5},
          {.temperature = 1.0F, .top_p = 1e-6F, .seed = 6, .logprobs = 0},
          {.temperature = 1.0F, .top_p = 0.9999999F, .top_k = 1, .seed = 7}};
}

TEST_F(SampleOps, TiesAndBrokenRowsAreCutAsByTheHost) {
  for (const int64_t vocabulary : {int64_t{50257}, int64_t{128256}}) {
    for (const Logits kind : {Logits::kEqual, Logits::kSteps, Logits::kOne, Logits::kNone,
                              Logits::kInfinite, Logits::kSteep}) {
      under_test_.clear();
      const std::vector<SampleRow> specs = cuts();
      const auto rows = std::ssize(specs);
      std::vector<float> all;
      for (int64_t row = 0; row < rows; ++row) {
        const std::vector<float> logits = logits_of(kind, vocabulary, random_);
        all.insert(all.end(), logits.begin(), logits.end());
      }
      Both<float> logits(std::move(all));
      const Both<SampleRow> there(specs);
      const Both<SampleResult> results(rows);
      under_test_.run(SampleOp{.logits = logits.device(),
                               .stride = vocabulary,
                               .vocabulary = vocabulary,
                               .rows = there.device(),
                               .results = results.device(),
                               .row_count = rows});
      std::vector<SampleResult> wanted(specs.size());
      reference_.sample({.logits = logits.host.data(),
                         .stride = vocabulary,
                         .vocabulary = vocabulary,
                         .rows = specs.data(),
                         .results = wanted.data(),
                         .row_count = rows},
                        0, rows);
      const std::vector<SampleResult> got = results.result();
      for (size_t i = 0; i < got.size(); ++i) {
        SCOPED_TRACE(testing::Message() << "row " << i << " of " << vocabulary << ", logits "
                                        << static_cast<int>(kind));
        EXPECT_EQ(got[i].token, wanted[i].token);
        EXPECT_EQ(got[i].rank, wanted[i].rank);
        EXPECT_NEAR(got[i].logprob, wanted[i].logprob, 1e-5);
        ASSERT_EQ(got[i].top_count, wanted[i].top_count);
        for (int32_t t = 0; t < got[i].top_count; ++t) {
          EXPECT_EQ(got[i].top_tokens[t], wanted[i].top_tokens[t]);
          EXPECT_NEAR(got[i].top_logprobs[t], wanted[i].top_logprobs[t], 1e-5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::device
