#include "api/side_threads.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tandem::api {
namespace {

constexpr int64_t kLong = 1000;
constexpr auto kApplies = SideThreads::Bound::kApplies;

SideThreadsOptions two_threads() {
  return {.threads = 2, .max_short_cost = 100, .max_waiting = 20, .max_waiting_of_client = 15};
}

// Jobs that wait for each other and say when they ran.
class Story {
 public:
  std::function<void()> telling(std::string name) {
    return [this, name] { tell(name); };
  }
  // Says `name` when it runs and ends after open().
  std::function<void()> blocking(std::string name) {
    return [this, name] {
      tell(name);
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return open_; });
    };
  }
  void open() {
    const std::scoped_lock lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  std::vector<std::string> wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(20), [&] { return told_.size() >= count; }));
    return told_;
  }

 private:
  void tell(const std::string& name) {
    const std::scoped_lock lock(mutex_);
    told_.push_back(name);
    changed_.notify_all();
  }
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<std::string> told_;
  bool open_ = false;
};

TEST(SideThreads, AShortJobNeverWaitsForLongOnes) {
  Story story;
  SideThreads side(two_threads());
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(side.post("a", kLong, kApplies, story.blocking("long")));
  }
  story.wait_for(1);
  ASSERT_TRUE(side.post("a", 1, kApplies, story.telling("short")));
  EXPECT_EQ(story.wait_for(2), (std::vector<std::string>{"long", "short"}));
  story.open();
  story.wait_for(6);
}

TEST(SideThreads, ClientsShareTheThreadsByCost) {
  Story story;
  SideThreads side(two_threads());
  ASSERT_TRUE(side.post("a", kLong, kApplies, story.blocking("a0")));
  story.wait_for(1);
  for (int i = 1; i <= 4; ++i) {
    ASSERT_TRUE(side.post("a", kLong, kApplies, story.telling("a" + std::to_string(i))));
  }
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(side.post("b", kLong, kApplies, story.telling("b" + std::to_string(i))));
  }
  ASSERT_TRUE(side.post("c", 2 * kLong, kApplies, story.telling("c0")));
  ASSERT_TRUE(side.post("c", kLong, kApplies, story.telling("c1")));
  story.open();
  EXPECT_EQ(story.wait_for(9),
            (std::vector<std::string>{"a0", "b0", "c0", "a1", "b1", "a2", "c1", "a3", "a4"}));
}

TEST(SideThreads, WaitingJobsAreBoundedPerClientAndInAll) {
  Story story;
  SideThreads side(two_threads());
  ASSERT_TRUE(side.post("a", kLong, kApplies, story.blocking("a")));
  story.wait_for(1);
  for (int i = 0; i < 15; ++i) {
    ASSERT_TRUE(side.post("a", kLong, kApplies, story.telling("a")));
  }
  EXPECT_FALSE(side.post("a", kLong, kApplies, story.telling("never")));
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(side.post("b", kLong, kApplies, story.telling("b")));
  }
  EXPECT_FALSE(side.post("c", 1, kApplies, story.telling("never")));
  EXPECT_TRUE(side.post("c", kLong, SideThreads::Bound::kIgnored, story.telling("c")));
  EXPECT_EQ(side.waiting(), 21U);
  story.open();
  story.wait_for(22);
  EXPECT_EQ(side.waiting(), 0U);
  EXPECT_TRUE(side.post("a", kLong, kApplies, story.telling("a")));
  story.wait_for(23);
}

TEST(SideThreads, AWithdrawnJobIsReturnedAndNeverRuns) {
  Story story;
  SideThreads side(two_threads());
  ASSERT_TRUE(side.post("a", kLong, kApplies, story.blocking("first")));
  story.wait_for(1);
  const auto owned = std::make_shared<int>();
  const auto ticket =
      side.post("a", kLong, kApplies, [owned, tell = story.telling("never")] { tell(); });
  EXPECT_EQ(owned.use_count(), 2);
  std::function<void()> job = side.withdraw(*ticket);
  EXPECT_EQ(owned.use_count(), 2) << "the caller decides where it is destroyed";
  EXPECT_EQ(side.waiting(), 0U);
  EXPECT_FALSE(side.withdraw(*ticket));
  job = nullptr;
  EXPECT_EQ(owned.use_count(), 1);
  ASSERT_TRUE(side.post("a", kLong, kApplies, story.telling("last")));
  story.open();
  EXPECT_EQ(story.wait_for(2), (std::vector<std::string>{"first", "last"}));
}

TEST(SideThreads, StopEndsWhatRunsAndDropsWhatWaits) {
  Story story;
  SideThreads side(two_threads());
  const auto owned = std::make_shared<int>();
  ASSERT_TRUE(side.post("a", kLong, kApplies, story.blocking("running")));
  story.wait_for(1);
  ASSERT_TRUE(side.post("a", kLong, kApplies, [owned, tell = story.telling("never")] { tell(); }));
  std::thread stopper([&] { side.stop(); });
  while (side.waiting() > 0) {
    std::this_thread::yield();
  }
  EXPECT_FALSE(side.post("a", 1, SideThreads::Bound::kIgnored, story.telling("never")));
  story.open();
  stopper.join();
  EXPECT_EQ(owned.use_count(), 1);
  EXPECT_EQ(story.wait_for(1).size(), 1U);
}

}  // namespace
}  // namespace tandem::api
