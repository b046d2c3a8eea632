#include "sim/sim_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tandem::sim {
namespace {

using piggyback::HopAnswer;
using piggyback::HopTask;
using std::chrono::microseconds;
using ::testing::ElementsAre;

// 8 heads of 128 in bf16: 4096 bytes a token and layer.
piggyback::AttentionSpec spec_of(std::vector<int32_t> windows = {}) {
  return {.layout = {ElementType::kBF16, 2, 8, 128, 128, 32},
          .heads = 32,
          .windows = std::move(windows)};
}

HopTask task_of(int32_t slot, int32_t context, int32_t layer = 0) {
  return {.hop = {.slot = slot, .generation = 1}, .layer = layer, .position = context - 1};
}

class SimHosts : public ::testing::Test {
 protected:
  // 1000 tokens take 40.96 us.
  std::unique_ptr<SimHost> make(std::vector<int32_t> windows = {}) {
    auto host = std::make_unique<SimHost>(
        time_, SimHostSpec{.bytes_per_second = 100e9, .workers = 4, .task = microseconds(4)},
        spec_of(std::move(windows)));
    host->set_listener(
        [this](const piggyback::AnswerNotice& notice) { notices_.push_back(notice); });
    return host;
  }
  std::vector<HopAnswer> run(SimHost& host) {
    while (time_.step()) {
    }
    std::vector<HopAnswer> answers;
    host.take_answers(answers);
    return answers;
  }

  VirtualTime time_;
  std::vector<piggyback::AnswerNotice> notices_;
};

TEST_F(SimHosts, TasksShareTheBandwidthAndTheWorkersTime) {
  const auto host = make();
  const std::vector<HopTask> tasks = {task_of(0, 1000), task_of(1, 1000)};
  host->submit(tasks);
  EXPECT_EQ(host->waiting(), 2);
  const std::vector<HopAnswer> answers = run(*host);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].hop, tasks[0].hop);
  EXPECT_EQ(answers[0].bytes, 4'096'000);
  EXPECT_EQ(answers[0].ended, Nanos{40'960 + 1000 + 4000});
  EXPECT_EQ(answers[1].ended, Nanos{2 * 40'960 + 2 * 1000 + 4000});
  ASSERT_EQ(notices_.size(), 2U);
  EXPECT_TRUE(notices_[0].more_follow);
  EXPECT_FALSE(notices_[1].more_follow);
  EXPECT_EQ(host->counts().tasks, 2);
  EXPECT_EQ(host->counts().bytes, 2 * 4'096'000);
}

TEST_F(SimHosts, AWindowBoundsWhatIsRead) {
  const auto host = make({0, 100});
  const std::vector<HopTask> tasks = {task_of(0, 50, 1), task_of(1, 1000, 1)};
  host->submit(tasks);
  const std::vector<HopAnswer> answers = run(*host);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].bytes, 50 * 4096);
  EXPECT_EQ(answers[1].bytes, 100 * 4096);
}

TEST_F(SimHosts, WhatIsWithdrawnFailsAtOnceAndOnce) {
  const auto host = make();
  const std::vector<HopTask> tasks = {task_of(0, 1000), task_of(1, 1000), task_of(2, 1000)};
  host->submit(tasks);
  host->withdraw(tasks[1].hop, 0);
  host->withdraw(tasks[1].hop, 0);
  std::vector<HopAnswer> answers;
  host->take_answers(answers);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_TRUE(answers[0].failed);
  answers = run(*host);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].hop, tasks[0].hop);
  EXPECT_EQ(answers[1].hop, tasks[2].hop);
  EXPECT_EQ(host->waiting(), 0);
}

}  // namespace
}  // namespace tandem::sim
