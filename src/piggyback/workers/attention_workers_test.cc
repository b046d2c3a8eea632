// The bits of host attention: those of the plain path, however the work is cut.
#include "piggyback/workers/attention_workers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "piggyback/workers/test_support.h"

namespace tandem::piggyback {
namespace {

constexpr ElementType kF32 = ElementType::kF32;
constexpr ElementType kBF16 = ElementType::kBF16;

bool same(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

// Every layer of the rows by workers against the plain path, results and pool.
void expect_plain(HostRows& rows, const HostShape& shape, int32_t threads,
                  int64_t most_rooms = 1000) {
  AttentionWorkersOptions options = rows.options();
  options.threads = threads;
  options.partials.count = std::min(options.partials.count, most_rooms);
  const std::unique_ptr<AttentionWorkers> attention = start(options);
  for (int32_t layer = 0; layer < shape.layers; ++layer) {
    rows.reset();
    const std::vector<std::byte> expected = rows.plain(layer);
    const std::vector<std::byte> pool = rows.pool_bytes();
    rows.reset();
    for (const HopAnswer& done : run_all(*attention, rows.tasks(layer))) {
      EXPECT_FALSE(done.failed);
      EXPECT_GE(done.worker, 0);
      EXPECT_LE(done.began, done.ended);
    }
    EXPECT_TRUE(same(rows.results(), expected)) << threads << " threads, layer " << layer;
    EXPECT_TRUE(same(rows.pool_bytes(), pool)) << threads << " threads, layer " << layer;
  }
}

class AttentionWorkersBits : public testing::TestWithParam<kernels::Isa> {
 protected:
  void SetUp() override {
    if (!kernels::kernels_for(GetParam()).ok()) {
      GTEST_SKIP() << "this machine has no " << kernels::isa_name(GetParam());
    }
  }
};

TEST_P(AttentionWorkersBits, EqualThePlainPathForRandomShapesAndThreads) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 8; ++round) {
    const std::vector<int32_t> groups = {1, 2, 4, 7};
    const std::vector<int32_t> head_dims = {8, 32, 40, 64, 128};
    HostShape shape{.isa = GetParam(),
                    .type = round % 2 == 0 ? kBF16 : kF32,
                    .kv_heads = static_cast<int32_t>(random() % 3 + 1),
                    .group = groups[random() % groups.size()],
                    .head_dim = head_dims[random() % head_dims.size()],
                    .block_tokens = round % 3 == 0 ? 16 : 32,
                    .out_type = round % 4 < 2 ? kBF16 : kF32};
    if (round % 3 == 1) {
      shape.windows = {0, static_cast<int32_t>(random() % 300 + 1)};
    }
    HostRows rows(shape, {0, 1, 15, 31, 255, 256, 511, static_cast<int32_t>(random() % 900)},
                  random());
    for (const int32_t threads : {1, 3}) {
      expect_plain(rows, shape, threads);
    }
  }
}

TEST_P(AttentionWorkersBits, EqualThePlainPathWhenContextsAreCutOverTheWorkers) {
  // 2 x 4 x 64 x 2 bytes a token: 2500 tokens are 2.5 MB, which is cut; 300 go whole.
  const HostShape shape{.isa = GetParam(),
                        .kv_heads = 4,
                        .group = 2,
                        .head_dim = 64,
                        .layers = 2,
                        .windows = {0, 1100}};
  HostRows rows(shape, {2499, 300, 1279}, 11);
  for (const int32_t threads : {1, 2, 4}) {
    expect_plain(rows, shape, threads);
    // Whoever finds no room for partial results is cut into heads.
    expect_plain(rows, shape, threads, 1);
    expect_plain(rows, shape, threads, 0);
  }
}

TEST_P(AttentionWorkersBits, StayWhenATaskIsDoneAgain) {
  const HostShape shape{.isa = GetParam()};
  HostRows rows(shape, {40, 300}, 5);
  AttentionWorkersOptions options = rows.options();
  options.threads = 2;
  const std::unique_ptr<AttentionWorkers> attention = start(options);
  run_all(*attention, rows.tasks(1));
  const std::vector<std::byte> first = rows.results();
  const std::vector<std::byte> pool = rows.pool_bytes();
  run_all(*attention, rows.tasks(1));
  EXPECT_EQ(rows.results(), first);
  EXPECT_EQ(rows.pool_bytes(), pool);
}

INSTANTIATE_TEST_SUITE_P(Isas, AttentionWorkersBits, testing::ValuesIn(kernels::known_isas()),
                         [](const auto& param_info) {
                           return std::string(kernels::isa_name(param_info.param));
                         });

TEST(AttentionWorkers, CountsTasksBytesAndBusyTime) {
  const HostShape shape{.kv_heads = 2, .group = 1, .head_dim = 32, .windows = {0, 10}};
  HostRows rows(shape, {99, 49}, 5);
  const std::unique_ptr<AttentionWorkers> attention = start(rows.options());
  const int64_t token_bytes = int64_t{2} * 2 * 32 * 2;
  run_all(*attention, rows.tasks(0));
  EXPECT_EQ(attention->counts().bytes, 150 * token_bytes);
  const std::vector<HopAnswer> windowed = run_all(*attention, rows.tasks(1));
  EXPECT_EQ(windowed[0].bytes, 10 * token_bytes);
  EXPECT_EQ(attention->counts().bytes, 170 * token_bytes);
  EXPECT_EQ(attention->counts().tasks, 4);
  EXPECT_EQ(attention->counts().failed, 0);
  EXPECT_GT(attention->counts().busy, Nanos{0});
  EXPECT_EQ(attention->waiting(), 0);
}

TEST(AttentionWorkers, DoesManyRowsInManyBatchesOnPinnedThreads) {
  const HostShape shape{.kv_heads = 1, .group = 1};
  HostRows rows(shape, std::vector<int32_t>(64, 20), 9);
  const std::vector<std::byte> expected = rows.plain(0);
  rows.reset();
  AttentionWorkersOptions options = rows.options();
  options.threads = 3;
  options.cpus = {0};
  options.spin = std::chrono::microseconds(20);
  const std::unique_ptr<AttentionWorkers> attention = start(options);
  Answers answers(*attention);
  const std::vector<HopTask> tasks = rows.tasks(0);
  for (size_t first = 0; first < tasks.size(); first += 8) {
    attention->submit(std::span(tasks).subspan(first, 8));
  }
  EXPECT_EQ(answers.wait(tasks.size()).size(), tasks.size());
  attention->set_listener(nullptr);
  EXPECT_EQ(rows.results(), expected);
}

TEST(AttentionWorkers, StopsWithTasksThatNobodyBegan) {
  HostRows rows({}, {5, 6}, 1);
  const std::unique_ptr<AttentionWorkers> attention = start(rows.options());
  attention->freeze();
  attention->submit(rows.tasks(0));
  EXPECT_EQ(attention->waiting(), 2);
  EXPECT_EQ(attention->stop(std::chrono::seconds(60)), 0);
}

}  // namespace
}  // namespace tandem::piggyback
