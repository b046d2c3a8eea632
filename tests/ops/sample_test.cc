// Sampling of every kernel family against a brute-force oracle that sorts in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>

#include "families.h"
#include "kernels/kernels.h"
#include "kernels/sample_rows.h"

namespace tandem::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Everything a row needs, with its memory.
struct Request {
  std::vector<float> logits;
  SampleRow spec;
  std::vector<int32_t> prompt;
  std::vector<int32_t> output;
  std::vector<TokenBias> biases;
  std::vector<int32_t> banned;
  mutable std::vector<int32_t> history;  // what row() points to
  mutable std::vector<int32_t> history_blocks;

  // The history's blocks lie backwards, with others between them.
  [[nodiscard]] SampleRow row() const {
    constexpr int32_t kBlockTokens = 16;
    std::vector<int32_t> tokens = prompt;
    tokens.insert(tokens.end(), output.begin(), output.end());
    const auto blocks =
        static_cast<int32_t>((std::ssize(tokens) + kBlockTokens - 1) / kBlockTokens);
    history.assign(static_cast<size_t>(2 * blocks * kBlockTokens), 1);
    history_blocks.clear();
    for (int32_t i = 0; i < blocks; ++i) {
      history_blocks.push_back(2 * (blocks - 1 - i));
      const auto begin = static_cast<int64_t>(i) * kBlockTokens;
      std::copy(tokens.begin() + begin,
                tokens.begin() + std::min<int64_t>(begin + kBlockTokens, std::ssize(tokens)),
                history.begin() + static_cast<int64_t>(history_blocks.back()) * kBlockTokens);
    }
    SampleRow row = spec;
    row.history = history.data();
    row.history_blocks = history_blocks.data();
    row.history_block_tokens = kBlockTokens;
    row.prompt_tokens = static_cast<int64_t>(prompt.size());
    row.output_tokens = static_cast<int64_t>(output.size());
    row.biases = biases.data();
    row.bias_count = static_cast<int64_t>(biases.size());
    row.banned = banned.data();
    row.banned_count = static_cast<int64_t>(banned.size());
    return row;
  }
};

SampleResult sample_one(const Kernels& kernels, const Request& request) {
  const auto vocabulary = static_cast<int64_t>(request.logits.size());
  Guarded<float> logits(vocabulary + 13);  // what lies past the vocabulary is NaN
  std::copy(request.logits.begin(), request.logits.end(), logits.data());
  const SampleRow row = request.row();
  SampleResult result;
  kernels.sample({logits.data(), logits.size(), vocabulary, &row, &result, 1}, 0, 1);
  EXPECT_TRUE(logits.guards_intact());
  return result;
}

// Logits after bias, bans and penalties, in double.
std::vector<double> oracle_logits(const Request& request) {
  std::vector<double> x(request.logits.begin(), request.logits.end());
  for (const TokenBias& entry : request.biases) {
    x[static_cast<size_t>(entry.token)] += static_cast<double>(entry.bias);
  }
  for (const int32_t token : request.banned) {
    x[static_cast<size_t>(token)] = -std::numeric_limits<double>::infinity();
  }
  std::set<int32_t> seen(request.prompt.begin(), request.prompt.end());
  seen.insert(request.output.begin(), request.output.end());
  for (const int32_t token : seen) {
    double& logit = x[static_cast<size_t>(token)];
    const auto penalty = static_cast<double>(request.spec.repetition_penalty);
    logit = logit > 0.0 ? logit / penalty : logit * penalty;
  }
  for (const int32_t token : std::set<int32_t>(request.output.begin(), request.output.end())) {
    const auto count = std::count(request.output.begin(), request.output.end(), token);
    x[static_cast<size_t>(token)] -=
        static_cast<double>(request.spec.frequency_penalty) * static_cast<double>(count) +
        static_cast<double>(request.spec.presence_penalty);
  }
  return x;
}

std::vector<int32_t> order_of(const std::vector<double>& x) {
  std::vector<int32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return x[static_cast<size_t>(a)] > x[static_cast<size_t>(b)];
  });
  return order;
}

constexpr double kNear = 2e-6;  // relative rounding of fp32 sums and exponentials

struct Drawn {
  int32_t token = -1;
  bool clear = true;  // false: a limit is so near that rounding may decide
};

Drawn oracle_draw(const Request& request) {
  const std::vector<double> x = oracle_logits(request);
  const std::vector<int32_t> order = order_of(x);
  const SampleRow& spec = request.spec;
  std::vector<double> weights;
  for (const int32_t token : order) {
    weights.push_back(std::exp((x[static_cast<size_t>(token)] - x[static_cast<size_t>(order[0])]) /
                               static_cast<double>(spec.temperature)));
  }
  size_t kept =
      spec.top_k > 0 ? std::min<size_t>(static_cast<size_t>(spec.top_k), x.size()) : x.size();
  const double total =
      std::accumulate(weights.begin(), weights.begin() + static_cast<int64_t>(kept), 0.0);
  Drawn drawn;
  double mass = 0.0;
  for (size_t i = 0; i < kept; ++i) {
    const double limit = static_cast<double>(spec.top_p) * total;
    const double min_weight = static_cast<double>(spec.min_p);
    if (i > 0 && spec.top_p < 1.0F && std::abs(mass - limit) < kNear * total) {
      drawn.clear = false;
    }
    if (i > 0 && min_weight > 0.0 && std::abs(weights[i] - min_weight) < kNear * min_weight) {
      drawn.clear = false;
    }
    if (i > 0 && ((spec.top_p < 1.0F && mass >= limit) || weights[i] < min_weight)) {
      kept = i;
      break;
    }
    mass += weights[i];
  }
  std::vector<double> by_id(x.size(), 0.0);
  double kept_total = 0.0;
  for (size_t i = 0; i < kept; ++i) {
    by_id[static_cast<size_t>(order[i])] = weights[i];
    kept_total += weights[i];
  }
  const double wanted =
      sample_uniform(spec.seed, static_cast<uint64_t>(spec.position)) * kept_total;
  double sum = 0.0;
  for (size_t token = 0; token < by_id.size(); ++token) {
    sum += by_id[token];
    drawn.clear = drawn.clear && std::abs(sum - wanted) > kNear * kept_total;
    if (sum > wanted && by_id[token] > 0.0) {
      drawn.token = static_cast<int32_t>(token);
      break;
    }
  }
  return drawn;
}

enum class Kind { kPeaked, kFlat, kTied, kSparse };

std::vector<float> make_logits(Random& random, Kind kind, int64_t vocabulary) {
  std::vector<float> logits(static_cast<size_t>(vocabulary));
  std::normal_distribution<float> normal(0.0F, kind == Kind::kPeaked ? 4.0F : 0.3F);
  for (float& logit : logits) {
    logit = normal(random);
    if (kind == Kind::kTied) {
      logit = std::round(logit * 4.0F) / 4.0F;
    } else if (kind == Kind::kSparse && pick(random, 0, 9) > 0) {
      logit = -kInfinity;
    }
  }
  logits[static_cast<size_t>(vocabulary / 2)] = 1.0F;
  return logits;
}

class Sampling : public testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    if (!can_run(GetParam())) {
      GTEST_SKIP() << "this machine has no " << GetParam().name;
    }
    kernels_ = &table_of(GetParam());
  }
  const Kernels* kernels_ = nullptr;
};

TEST_P(Sampling, TemperatureZeroTakesTheLowestIdOfTheHighest) {
  for (const int64_t vocabulary : {1, 2, 15, 16, 17, 1000, 32771, 151936}) {
    Request request;
    request.logits.assign(static_cast<size_t>(vocabulary), -3.0F);
    request.spec.temperature = 0.0F;
    EXPECT_EQ(sample_one(*kernels_, request).token, 0);
    request.logits[static_cast<size_t>(vocabulary - 1)] = 2.0F;
    EXPECT_EQ(sample_one(*kernels_, request).token, vocabulary - 1);
    request.logits[static_cast<size_t>(vocabulary / 3)] = 2.0F;
    EXPECT_EQ(sample_one(*kernels_, request).token, vocabulary / 3);
  }
}

TEST_P(Sampling, RowWithoutAUsableLogitGivesNoToken) {
  for (const int64_t vocabulary : {1, 37, 5000}) {
    for (const float broken : {std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
      for (const int64_t at : {int64_t{0}, vocabulary / 2, vocabulary - 1}) {
        Request request;
        request.logits.assign(static_cast<size_t>(vocabulary), 1.0F);
        request.logits[static_cast<size_t>(at)] = broken;
        EXPECT_EQ(sample_one(*kernels_, request).token, -1);
      }
    }
    Request request;
    request.logits.assign(static_cast<size_t>(vocabulary), -kInfinity);
    EXPECT_EQ(sample_one(*kernels_, request).token, -1);
    request.spec.temperature = 0.0F;
    request.spec.logprobs = 5;
    EXPECT_EQ(sample_one(*kernels_, request).token, -1);
  }
}

TEST_P(Sampling, BiasAndBansMoveTheChoice) {
  Request request;
  request.logits = {1.0F, 3.0F, 2.0F, 0.0F};
  request.spec.temperature = 0.0F;
  request.banned = {1};
  EXPECT_EQ(sample_one(*kernels_, request).token, 2);
  request.biases = {{3, 2.5F}};
  EXPECT_EQ(sample_one(*kernels_, request).token, 3);
  request.biases = {{3, -kInfinity}, {2, -kInfinity}};
  EXPECT_EQ(sample_one(*kernels_, request).token, 0);
  // Ids that are none are ignored.
  request.biases = {{-1, 100.0F}, {4, 100.0F}};
  request.banned = {-5, 400};
  EXPECT_EQ(sample_one(*kernels_, request).token, 1);
}

TEST_P(Sampling, LogprobsAreOfThePenalisedLogitsBeforeTemperature) {
  Random random(3);
  for (int trial = 0; trial < 24; ++trial) {
    const int64_t vocabulary = std::vector<int64_t>{30, 700, 9000, 140000}[trial % 4];
    Request request;
    request.logits = make_logits(random, static_cast<Kind>(trial % 3), vocabulary);
    for (int i = 0; i < 400; ++i) {
      request.prompt.push_back(static_cast<int32_t>(pick(random, 0, vocabulary - 1)));
    }
    for (int i = 0; i < 200; ++i) {
      const int64_t high = i % 2 == 0 ? vocabulary - 1 : std::min<int64_t>(9, vocabulary - 1);
      request.output.push_back(static_cast<int32_t>(pick(random, 0, high)));
    }
    request.biases = {{3, 1.5F}, {7, -2.0F}};
    request.banned = {5};
    request.spec.repetition_penalty = trial % 2 == 0 ? 1.3F : 1.0F;
    request.spec.presence_penalty = trial % 3 == 0 ? 0.4F : 0.0F;
    request.spec.frequency_penalty = trial % 5 == 0 ? 0.0F : 0.03F;
    request.spec.temperature = trial % 2 == 0 ? 0.0F : 0.7F;
    request.spec.top_k = 10;
    request.spec.position = trial;
    request.spec.logprobs = trial % 4 == 1 ? 0 : 20;

    const SampleResult result = sample_one(*kernels_, request);
    const std::vector<double> x = oracle_logits(request);
    const std::vector<int32_t> order = order_of(x);
    const double max = x[static_cast<size_t>(order[0])];
    double total = 0.0;
    for (const double logit : x) {
      total += std::exp(logit - max);
    }
    const auto logprob = [&](int32_t token) {
      return x[static_cast<size_t>(token)] - max - std::log(total);
    };
    ASSERT_GE(result.token, 0);
    EXPECT_NEAR(result.logprob, logprob(result.token), 2e-5);
    ASSERT_EQ(result.top_count, request.spec.logprobs);
    for (int32_t i = 0; i < result.top_count; ++i) {
      // Equal up to rounding: the penalties are computed in fp32.
      EXPECT_NEAR(result.top_logprobs[i], logprob(result.top_tokens[i]), 2e-5);
      EXPECT_NEAR(result.top_logprobs[i], logprob(order[static_cast<size_t>(i)]), 2e-5);
    }
    const auto rank = std::find(order.begin(), order.end(), result.token) - order.begin() + 1;
    const double own = x[static_cast<size_t>(result.token)];
    const auto near = std::count_if(x.begin(), x.end(),
                                    [&](double other) { return std::abs(other - own) < 1e-5; });
    EXPECT_NEAR(result.rank, static_cast<double>(rank), static_cast<double>(near - 1));
    if (request.spec.temperature == 0.0F) {
      EXPECT_EQ(result.rank, 1);
    }
  }
}

TEST_P(Sampling, EqualLogitsAreListedByTheirIds) {
  Request request;
  request.logits.assign(100000, 0.0F);
  request.logits[500] = -0.0F;  // equal to 0
  request.logits[77777] = 1.0F;
  request.spec.temperature = 0.0F;
  request.spec.logprobs = 4;
  const SampleResult result = sample_one(*kernels_, request);
  EXPECT_EQ(result.token, 77777);
  ASSERT_EQ(result.top_count, 4);
  const std::vector<int32_t> top(result.top_tokens, result.top_tokens + 4);
  EXPECT_EQ(top, (std::vector<int32_t>{77777, 0, 1, 2}));
}

TEST_P(Sampling, MoreLogprobsThanTokensListsThemAll) {
  Request request;
  request.logits = {0.0F, 1.0F, -kInfinity};
  request.spec.logprobs = 20;
  const SampleResult result = sample_one(*kernels_, request);
  EXPECT_EQ(result.top_count, 2);
  EXPECT_EQ(result.top_tokens[0], 1);
}

TEST_P(Sampling, DrawsWhatSortingInDoublePrecisionDraws) {
  Random random(4);
  int unclear = 0;
  int trial = 0;
  for (const int64_t vocabulary : {1, 5, 300, 2500, 20000}) {
    for (const Kind kind : {Kind::kPeaked, Kind::kFlat, Kind::kTied, Kind::kSparse}) {
      const std::vector<float> logits = make_logits(random, kind, vocabulary);
      for (const int32_t top_k : {0, 1, 40, 1024, 3000}) {
        for (const float top_p : {1.0F, 0.9F, 0.2F, 0.0F}) {
          const float min_p = std::vector<float>{0.0F, 0.0F, 0.1F, 1.0F}[++trial % 4];
          Request request;
          request.logits = logits;
          request.spec.top_k = top_k;
          request.spec.top_p = top_p;
          request.spec.min_p = min_p;
          request.spec.temperature = std::vector<float>{0.5F, 1.0F, 1.7F}[trial % 3];
          request.spec.seed = static_cast<uint64_t>(trial) << 20;
          request.spec.position = trial * 3;
          const Drawn wanted = oracle_draw(request);
          if (!wanted.clear) {
            ++unclear;
            continue;
          }
          ASSERT_EQ(sample_one(*kernels_, request).token, wanted.token)
              << "vocabulary " << vocabulary << ", kind " << static_cast<int>(kind) << ", top-k "
              << top_k << ", top-p " << top_p << ", min-p " << min_p;
        }
      }
    }
  }
  EXPECT_LT(unclear, trial / 3);
}

TEST_P(Sampling, LargeVocabulariesDrawAsTheOracleDoes) {
  Random random(5);
  for (const Kind kind : {Kind::kPeaked, Kind::kFlat}) {
    Request request;
    request.logits = make_logits(random, kind, 151936);
    for (const int32_t top_k : {0, 5000}) {
      for (const float top_p : {1.0F, 0.95F}) {
        request.spec.top_k = top_k;
        request.spec.top_p = top_p;
        request.spec.position = top_k + (top_p < 1.0F ? 1 : 0);
        const Drawn wanted = oracle_draw(request);
        if (wanted.clear) {
          EXPECT_EQ(sample_one(*kernels_, request).token, wanted.token)
              << "kind " << static_cast<int>(kind) << ", top-k " << top_k << ", top-p " << top_p;
        }
      }
    }
  }
}

TEST_P(Sampling, ExtremeTemperaturesStayInTheVocabulary) {
  Random random(6);
  Request request;
  request.logits = make_logits(random, Kind::kSparse, 3000);
  request.logits[1234] = 50.0F;
  for (const float temperature : {1e-30F, 1e-18F, 1e-3F, 1e3F, 1e30F, kInfinity}) {
    request.spec.temperature = temperature;
    for (int64_t position = 0; position < 20; ++position) {
      request.spec.position = position;
      const int32_t token = sample_one(*kernels_, request).token;
      ASSERT_GE(token, 0);
      ASSERT_GT(request.logits[static_cast<size_t>(token)], -kInfinity);
      if (temperature <= 1e-3F) {
        ASSERT_EQ(token, 1234);
      }
    }
  }
}

TEST_P(Sampling, DrawsFollowTheProbabilities) {
  const std::vector<double> probabilities = {0.4, 0.25, 0.15, 0.1, 0.05, 0.03, 0.02};
  Request request;
  for (const double p : probabilities) {
    request.logits.push_back(static_cast<float>(std::log(p)));
  }
  constexpr int kDraws = 20000;
  for (const uint64_t seed : {1ULL, 0xffffffffffffffffULL}) {
    std::vector<int> counts(probabilities.size());
    request.spec.seed = seed;
    for (int i = 0; i < kDraws; ++i) {
      request.spec.position = i;
      ++counts[static_cast<size_t>(sample_one(*kernels_, request).token)];
    }
    double chi_square = 0.0;
    for (size_t i = 0; i < counts.size(); ++i) {
      const double expected = probabilities[i] * kDraws;
      chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    EXPECT_LT(chi_square, 22.5);  // 6 degrees of freedom, p = 0.001
  }
}

TEST_P(Sampling, ARowDoesNotDependOnTheOthersAndEveryFamilyDrawsTheSame) {
  Random random(8);
  constexpr int64_t kVocabulary = 4001;
  constexpr int64_t kRows = 12;
  Guarded<float> logits(kRows * kVocabulary);
  std::vector<Request> requests(kRows);
  std::vector<SampleRow> specs;
  for (int64_t row = 0; row < kRows; ++row) {
    Request& request = requests[static_cast<size_t>(row)];
    request.logits = make_logits(random, static_cast<Kind>(row % 4), kVocabulary);
    request.spec.top_p = row % 2 == 0 ? 1.0F : 0.9F;
    request.spec.top_k = row % 3 == 0 ? 0 : 30;
    request.spec.seed = static_cast<uint64_t>(row);
    request.spec.logprobs = 3;
    std::copy(request.logits.begin(), request.logits.end(), logits.data() + row * kVocabulary);
  }
  for (const Request& request : requests) {
    specs.push_back(request.row());
  }
  std::vector<SampleResult> results(kRows);
  const SampleArgs args{logits.data(), kVocabulary,    kVocabulary,
                        specs.data(),  results.data(), kRows};
  kernels_->sample(args, 5, kRows);
  kernels_->sample(args, 0, 5);
  for (int64_t row = 0; row < kRows; ++row) {
    const SampleResult& got = results[static_cast<size_t>(row)];
    for (const Kernels* kernels : {kernels_, &table_of(Isa::kRef)}) {
      const SampleResult alone = sample_one(*kernels, requests[static_cast<size_t>(row)]);
      EXPECT_EQ(got.token, alone.token);
      EXPECT_EQ(std::bit_cast<uint32_t>(got.logprob), std::bit_cast<uint32_t>(alone.logprob));
      EXPECT_EQ(got.rank, alone.rank);
    }
  }
}

TEST_P(Sampling, AGivenTokenIsReportedOnAndNoneIsDrawn) {
  Request request;
  request.logits = {1.0F, 4.0F, 2.0F, 4.0F, -kInfinity};
  request.spec.logprobs = 2;
  double total = 0.0;
  for (const float logit : request.logits) {
    total += std::exp(static_cast<double>(logit));
  }
  const std::vector<int32_t> ranks = {4, 1, 3, 2, 5};
  for (int32_t token = 0; token < 5; ++token) {
    request.spec.given = token;
    const SampleResult result = sample_one(*kernels_, request);
    EXPECT_EQ(result.token, token);
    EXPECT_EQ(result.rank, ranks[static_cast<size_t>(token)]);
    const double logit = static_cast<double>(request.logits[static_cast<size_t>(token)]);
    if (token < 4) {
      EXPECT_NEAR(result.logprob, logit - std::log(total), 1e-5);
    } else {
      EXPECT_EQ(result.logprob, -kInfinity);
    }
    EXPECT_EQ(result.top_tokens[0], 1);
    EXPECT_EQ(result.top_tokens[1], 3);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryFamily, Sampling, testing::ValuesIn(known_families()),
                         [](const auto& param_info) { return param_info.param.name; });

TEST(SampleUniform, IsPhilox) {
  // The generator's published answer to key 0 and counter 0 begins 6627e8d5 e169c58d.
  EXPECT_EQ(sample_uniform(0, 0), static_cast<double>(0x6627e8d5e169c58dULL >> 11) * 0x1p-53);
  EXPECT_NE(sample_uniform(0, 1), sample_uniform(1, 0));
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_LT(sample_uniform(i, i * i), 1.0);
    EXPECT_GE(sample_uniform(i, i * i), 0.0);
  }
}

}  // namespace
}  // namespace tandem::kernels
