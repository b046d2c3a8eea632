#include "device/sim/sim_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tandem::device {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;

class SimStreams : public ::testing::Test {
 protected:
  SimStreams() {
    listener_ = [this] { heard_.push_back(time_.now()); };
    compute_.set_listener(&listener_);
    copies_.set_listener(&listener_);
    other_copies_.set_listener(&listener_);
  }
  void run_all() {
    while (time_.step()) {
    }
  }

  VirtualTime time_;
  SimStream compute_{time_, StreamKind::kCompute};
  SimStream copies_{time_, StreamKind::kDeviceToHost};
  SimStream other_copies_{time_, StreamKind::kSwap};
  SimLink link_{.bytes_per_second = 1e9, .latency = microseconds(2)};
  std::function<void()> listener_;
  std::vector<Nanos> heard_;
};

TEST_F(SimStreams, OpsFollowEachOtherFromWhenTheyWereIssued) {
  compute_.run(microseconds(10));
  compute_.run(microseconds(5));
  const int64_t first = compute_.record(false);
  time_.spend(microseconds(40));
  compute_.run(microseconds(1));
  const int64_t second = compute_.record(false);
  EXPECT_FALSE(compute_.is_done(first));
  run_all();
  EXPECT_TRUE(compute_.is_done(second));
  EXPECT_THAT(heard_, ElementsAre(microseconds(15), microseconds(41)));
  EXPECT_EQ(compute_.statistics().busy, Nanos{microseconds(16)});
  EXPECT_EQ(compute_.statistics().ops, 3);
}

TEST_F(SimStreams, ACopyBeginsWhenWhatItWaitsForIsDone) {
  compute_.run(microseconds(10));
  const int64_t computed = compute_.record(true);
  copies_.wait(compute_, computed);
  copies_.carry(link_, 5000);  // 5 us
  const int64_t copied = copies_.record(false);
  run_all();
  EXPECT_TRUE(copies_.is_done(copied));
  EXPECT_THAT(heard_, ElementsAre(microseconds(17)));  // the quiet event is not heard
}

TEST_F(SimStreams, ALinkServesWhoIsReadyFirst) {
  compute_.run(microseconds(10));
  const int64_t computed = compute_.record(true);
  copies_.wait(compute_, computed);
  copies_.carry(link_, 1000);
  copies_.record(false);
  // Issued later, but ready at once: it has the link first, and the other one waits for its end.
  other_copies_.carry(link_, 20'000);
  other_copies_.record(false);
  run_all();
  EXPECT_THAT(heard_, ElementsAre(microseconds(22), microseconds(23)));
  EXPECT_EQ(link_.bytes, 21'000);
}

// A step's inputs do not wait for rows of hops; a later copy waits for both.
TEST_F(SimStreams, WhatAComputeStreamMovesSharesTheLink) {
  copies_.carry(link_, 20'000);
  copies_.record(false);
  compute_.carry(link_, 1000);  // at half the link's speed
  compute_.record(false);
  other_copies_.carry(link_, 1000);
  other_copies_.record(false);
  run_all();
  EXPECT_THAT(heard_, ElementsAre(microseconds(4), microseconds(22), microseconds(24)));
}

TEST_F(SimStreams, WaitingForWhatIsDoneTakesNoTime) {
  const int64_t done = compute_.record(true);
  run_all();
  copies_.wait(compute_, done);
  copies_.run(microseconds(3));
  copies_.record(false);
  run_all();
  EXPECT_THAT(heard_, ElementsAre(microseconds(3)));
}

TEST_F(SimStreams, StreamsMayWaitForEachOtherInTurn) {
  copies_.carry(link_, 1000);
  const int64_t there = copies_.record(true);
  compute_.wait(copies_, there);
  compute_.run(microseconds(4));
  const int64_t computed = compute_.record(true);
  copies_.wait(compute_, computed);
  copies_.carry(link_, 2000);
  copies_.record(false);
  run_all();
  EXPECT_THAT(heard_, ElementsAre(microseconds(3 + 4 + 4)));
}

// The host gives each stream half, until the shorter op is done.
TEST_F(SimStreams, OpsOnASharedHostSlowEachOtherDown) {
  SharedBandwidth shared(time_);
  SimStream first(time_, StreamKind::kCompute);
  SimStream other(time_, StreamKind::kCompute);
  for (SimStream* stream : {&first, &other}) {
    stream->set_listener(&listener_);
    stream->share(shared);
  }
  first.run(microseconds(10), microseconds(10));
  first.record(false);
  other.run(microseconds(30), microseconds(30));
  other.run(microseconds(5), microseconds(5));
  other.record(false);
  run_all();
  EXPECT_THAT(heard_, ElementsAre(microseconds(20), microseconds(45)));
  EXPECT_EQ(first.statistics().busy, Nanos{microseconds(20)});
  EXPECT_EQ(other.statistics().busy, Nanos{microseconds(45)});
}

TEST_F(SimStreams, AloneOnASharedHostNothingChanges) {
  SharedBandwidth shared(time_);
  SimStream stream(time_, StreamKind::kCompute);
  stream.set_listener(&listener_);
  stream.share(shared);
  stream.run(microseconds(10), microseconds(10));
  stream.run(microseconds(5), microseconds(2));
  stream.record(false);
  time_.spend(microseconds(40));
  stream.run(microseconds(1), microseconds(1));
  stream.record(false);
  run_all();
  EXPECT_THAT(heard_, ElementsAre(microseconds(15), microseconds(41)));
}

}  // namespace
}  // namespace tandem::device
