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
  return {.hop = {.slot = slot, .generation = 1},
          .sequence = SequenceId{slot},
          .layer = layer,
          .position = context - 1};
}

class SimHostsTest : public ::testing::Test {
 protected:
  // 1000 tokens take 40.96 us.
  static SimHostSpec local() {
    return {.bytes_per_second = 100e9, .workers = 4, .task = microseconds(4)};
  }
  std::unique_ptr<SimHosts> make(std::vector<int32_t> windows = {},
                                 const std::vector<SimHostSpec>& hosts = {local()}) {
    auto host = std::make_unique<SimHosts>(time_, hosts, spec_of(std::move(windows)));
    host->set_listener(
        [this](const piggyback::AnswerNotice& notice) { notices_.push_back(notice); });
    return host;
  }
  std::vector<HopAnswer> run(SimHosts& host) {
    while (time_.step()) {
    }
    std::vector<HopAnswer> answers;
    host.take_answers(answers);
    return answers;
  }

  VirtualTime time_;
  std::vector<piggyback::AnswerNotice> notices_;
};

TEST_F(SimHostsTest, TasksShareTheBandwidthAndTheWorkersTime) {
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

TEST_F(SimHostsTest, AWindowBoundsWhatIsRead) {
  const auto host = make({0, 100});
  const std::vector<HopTask> tasks = {task_of(0, 50, 1), task_of(1, 1000, 1)};
  host->submit(tasks);
  const std::vector<HopAnswer> answers = run(*host);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].bytes, 50 * 4096);
  EXPECT_EQ(answers[1].bytes, 100 * 4096);
}

TEST_F(SimHostsTest, WhatIsWithdrawnFailsAtOnceAndOnce) {
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

class SimHostChoiceTest : public SimHostsTest {
 protected:
  // The host that gets this sequence. A context of 1,000 tokens is 8.2 MB.
  int32_t host_of(SimHosts& hosts, int64_t sequence, int32_t context = 1000) {
    HopTask task = task_of(0, context);
    task.sequence = SequenceId{sequence};
    hosts.submit(std::vector<HopTask>{task});
    return run(hosts).front().worker;
  }
  std::vector<int32_t> hosts_of(SimHosts& hosts, int64_t sequences) {
    std::vector<int32_t> chosen;
    for (int64_t sequence = 1; sequence <= sequences; ++sequence) {
      chosen.push_back(host_of(hosts, sequence));
    }
    return chosen;
  }
  static SimHostSpec sized(int64_t kv_bytes) {
    SimHostSpec host = local();
    host.kv_bytes = kv_bytes;
    return host;
  }
  static SimHostSpec remote(int64_t kv_bytes) {
    SimHostSpec host = sized(kv_bytes);
    host.latency = microseconds(1);
    return host;
  }
};

TEST_F(SimHostChoiceTest, LocalHostsAreFilledBeforeRemoteHosts) {
  const auto hosts = make({}, {remote(60'000'000), sized(20'000'000), remote(60'000'000)});
  EXPECT_THAT(hosts_of(*hosts, 6), ElementsAre(1, 1, 0, 2, 0, 2));
}

TEST_F(SimHostChoiceTest, EqualHostsShareSequencesWhateverTheirMemory) {
  const auto hosts = make({}, {sized(100'000'000), sized(60'000'000)});
  EXPECT_THAT(hosts_of(*hosts, 4), ElementsAre(0, 1, 0, 1));
}

TEST_F(SimHostChoiceTest, AHostHasSequencesInProportionToItsBandwidth) {
  SimHostSpec slow = sized(1'000'000'000);
  slow.bytes_per_second = 60e9;
  const auto hosts = make({}, {slow, sized(1'000'000'000)});
  EXPECT_THAT(hosts_of(*hosts, 8), ElementsAre(1, 0, 1, 1, 0, 1, 0, 1));
}

TEST_F(SimHostChoiceTest, AMuchSlowerHostHasOnlyWhatFastHostsHaveNoRoomFor) {
  SimHostSpec slow = sized(60'000'000);
  slow.bytes_per_second = 49e9;
  SimHostSpec slow_remote = remote(60'000'000);
  slow_remote.bytes_per_second = 49e9;
  const auto hosts = make({}, {slow_remote, remote(10'000'000), slow, sized(20'000'000)});
  EXPECT_THAT(hosts_of(*hosts, 11), ElementsAre(3, 3, 2, 2, 2, 2, 2, 2, 2, 1, 0));
}

TEST_F(SimHostChoiceTest, IfNoHostHasRoomTheHostWithTheMostMemoryIsChosen) {
  const auto hosts = make({}, {sized(10'000'000), remote(15'000'000)});
  EXPECT_THAT(hosts_of(*hosts, 4), ElementsAre(0, 1, 1, 0));
}

TEST_F(SimHostChoiceTest, ASequenceStaysOnItsHost) {
  const auto hosts = make({}, {sized(20'000'000), remote(60'000'000)});
  EXPECT_THAT(hosts_of(*hosts, 3), ElementsAre(0, 0, 1));
  EXPECT_EQ(host_of(*hosts, 2, 1500), 0) << "it grew";
  EXPECT_EQ(host_of(*hosts, 3, 10), 1);
  HopTask later = task_of(5, 1000, 1);  // another slot and layer
  later.sequence = SequenceId{3};
  hosts->submit(std::vector<HopTask>{later});
  EXPECT_EQ(run(*hosts).front().worker, 1);
}

TEST_F(SimHostChoiceTest, KvThatIsGoneLeavesRoom) {
  const auto hosts = make({}, {sized(10'000'000), remote(15'000'000)});
  SequenceId gone{-1};
  hosts->set_stays([&](SequenceId id) { return id != gone; });
  EXPECT_THAT(hosts_of(*hosts, 2), ElementsAre(0, 1));
  gone = SequenceId{1};
  EXPECT_EQ(host_of(*hosts, 3), 0);
  EXPECT_EQ(host_of(*hosts, 2), 1);
}

TEST_F(SimHostsTest, HostsWorkBesideEachOther) {
  SimHostSpec one = local();
  one.kv_bytes = 1'000'000'000;
  const auto hosts = make({}, {one, one});
  std::vector<HopTask> tasks = {task_of(0, 1000), task_of(1, 1000)};
  hosts->submit(tasks);
  const std::vector<HopAnswer> answers = run(*hosts);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].ended, answers[1].ended);
  EXPECT_EQ(hosts->counts().busy, Nanos{40'960 + 1000});
}

// 8192 bytes over 1 GB/s are 8.192 us on the way out, 4096 bytes half of it on the way back.
TEST_F(SimHostsTest, ALinkOfItsOwnIsPaidBothWays) {
  SimHostSpec remote = local();
  remote.link_bytes = 1e9;
  remote.latency = microseconds(10);
  piggyback::AttentionSpec spec = spec_of();
  spec.routed_row_bytes = 8192;
  spec.result_row_bytes = 4096;
  SimHosts host(time_, {remote}, spec);
  std::vector<Nanos> answered;
  host.set_listener([&](const piggyback::AnswerNotice& notice) { answered.push_back(notice.at); });
  host.submit(std::vector<HopTask>{task_of(0, 1000), task_of(1, 1)});
  while (time_.step()) {
  }
  ASSERT_EQ(answered.size(), 2U);
  const Nanos first{8192 + 10'000 + 40'960 + 1000 + 4000 + 4096 + 10'000};
  EXPECT_EQ(answered[0], first);
  // It waits for the first one's reading, and the answers share the link.
  EXPECT_EQ(answered[1], first + std::max(Nanos{40 + 1000}, Nanos{4096}));
}

// An executor waits for its copies after its host has ended.
TEST_F(SimHostsTest, ItMayEndBeforeItsTasks) {
  auto host = make();
  host->submit(std::vector<HopTask>{task_of(0, 1000)});
  EXPECT_NE(time_.next(), Nanos::max());
  host.reset();
  EXPECT_EQ(time_.next(), Nanos::max());
}

TEST_F(SimHostsTest, PooledHostsAreOne) {
  SimHostSpec a{.bytes_per_second = 100e9, .workers = 10, .kv_bytes = 1000, .latency = Nanos{5}};
  SimHostSpec b{.bytes_per_second = 50e9, .workers = 4, .kv_bytes = 900, .link_bytes = 1e9};
  const std::vector<SimHostSpec> hosts = {a, b};
  const SimHostSpec pool = pool_of(hosts);
  EXPECT_EQ(pool.bytes_per_second, 150e9);
  EXPECT_EQ(pool.workers, 4) << "each host pays for each task";
  EXPECT_EQ(pool.kv_bytes, 1500) << "the second one takes half of what the first one takes";
  EXPECT_EQ(pool.link_bytes, 1e9);
  EXPECT_EQ(pool.latency, Nanos{5});
}

TEST_F(SimHostsTest, AFaultyMeasurementSeesOtherTimes) {
  const auto host = make();
  std::vector<std::pair<Nanos, Nanos>> spans;
  host->watch([&](Nanos begin, Nanos end) { spans.emplace_back(begin, end); });
  host->set_pace(0.5);
  host->submit(std::vector<HopTask>{task_of(0, 1000)});
  EXPECT_EQ(run(*host).front().ended, Nanos{(40'960 + 1000 + 4000) / 2});
  host->set_pace(1);
  const Nanos now = time_.now();
  host->submit(std::vector<HopTask>{task_of(0, 1000)});
  EXPECT_EQ(run(*host).front().ended - now, Nanos{40'960 + 1000 + 4000});
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].second, now);
}

// Alone on a bandwidth that others may share, tasks take their time on a host of their own.
TEST_F(SimHostsTest, AShareOfTheBandwidthThatNobodyElseTakesIsWhole) {
  const std::vector<HopTask> tasks = {task_of(0, 1000), task_of(1, 700), task_of(2, 10)};
  std::vector<Nanos> ended;
  for (const bool shares : {false, true}) {
    VirtualTime time;
    device::SharedBandwidth bandwidth(time);
    SimHosts host(time, {local()}, spec_of());
    if (shares) {
      host.share(bandwidth);
    }
    host.submit(tasks);
    while (time.step()) {
    }
    std::vector<HopAnswer> answers;
    host.take_answers(answers);
    ASSERT_EQ(answers.size(), tasks.size());
    for (const HopAnswer& answer : answers) {
      ended.push_back(answer.ended);
    }
    EXPECT_EQ(host.counts().busy, Nanos{1710 * 4096 / 100 + 3 * 1000}) << shares;
  }
  EXPECT_EQ(std::vector(ended.begin(), ended.begin() + 3),
            std::vector(ended.begin() + 3, ended.end()));
}

TEST_F(SimHostsTest, AnotherUserOfTheBandwidthSlowsTasksDown) {
  device::SharedBandwidth bandwidth(time_);
  const auto host = make();
  host->share(bandwidth);
  const auto other = bandwidth.add_user({});
  bandwidth.submit(other, {.number = 1,
                           .ready = Nanos{0},
                           .alone = std::chrono::milliseconds(1),
                           .memory = std::chrono::milliseconds(1)});
  const std::vector<HopTask> tasks = {task_of(0, 1000), task_of(1, 1000)};
  host->submit(tasks);
  host->withdraw(tasks[1].hop, tasks[1].attempt);
  const std::vector<HopAnswer> answers = run(*host);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_TRUE(answers[0].failed);
  EXPECT_EQ(answers[1].hop, tasks[0].hop);
  // 40.96 us of reading take twice their time, with the worker's time beside it.
  EXPECT_EQ(answers[1].ended, Nanos{2 * 40'960 + 4000});
}

}  // namespace
}  // namespace tandem::sim
