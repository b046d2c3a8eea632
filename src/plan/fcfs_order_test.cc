#include "plan/fcfs_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tandem {
namespace {

QueueEntry entry(int64_t request, ServiceClass service_class = kLs, int32_t level = 0) {
  return {.id = SequenceId{request},
          .request = RequestId{request},
          .level = level,
          .service_class = service_class};
}

std::vector<int64_t> in_order(const QueueOrder& order) {
  std::vector<int64_t> requests;
  for (auto run = order.next(nullptr); !run.empty(); run = order.next(run.back())) {
    for (const QueueEntry* waiting : run) {
      requests.push_back(raw(waiting->request));
    }
  }
  return requests;
}

TEST(FcfsOrder, PutsClassesFirstThenLevelsThenArrivals) {
  std::vector<QueueEntry> entries = {entry(1, kBe), entry(2, kLs, 5), entry(3), entry(4, kBe, -1),
                                     entry(5)};
  FcfsOrder classes(FcfsOrder::By::kClassFirst);
  FcfsOrder arrivals(FcfsOrder::By::kArrival);
  for (const size_t i : {4U, 0U, 3U, 1U, 2U}) {
    classes.insert(entries[i], {});
    arrivals.insert(entries[i], {});
  }
  EXPECT_EQ(in_order(classes), (std::vector<int64_t>{3, 5, 2, 4, 1}));
  EXPECT_EQ(in_order(arrivals), (std::vector<int64_t>{1, 2, 3, 4, 5}));
  for (const QueueOrder* order :
       {static_cast<QueueOrder*>(&classes), static_cast<QueueOrder*>(&arrivals)}) {
    EXPECT_EQ(order->size(kLs), 3U);
    EXPECT_EQ(order->size(kBe), 2U);
  }
  EXPECT_EQ(classes.head(kBe), &entries[3]);
  EXPECT_EQ(arrivals.head(kBe), &entries[0]);
  EXPECT_EQ(arrivals.head(kLs), &entries[1]);
}

TEST(FcfsOrder, PutsBestEffortByItsTargets) {
  using std::chrono::seconds;
  std::vector<QueueEntry> entries = {entry(1, kBe), entry(2, kBe), entry(3, kBe), entry(4, kBe, -1),
                                     entry(5, kLs), entry(6, kLs), entry(7, kBe)};
  entries[1].first_token_due = seconds(20);
  entries[2].first_token_due = seconds(10);
  entries[5].first_token_due = seconds(1);
  entries[6].first_token_due = seconds(10);
  FcfsOrder order(FcfsOrder::By::kDeadline);
  for (QueueEntry& entry : entries) {
    order.insert(entry, {});
  }
  EXPECT_TRUE(order.classes_first());
  EXPECT_EQ(in_order(order), (std::vector<int64_t>{5, 6, 4, 3, 7, 2, 1}));
  order.erase(entries[2]);
  order.erase(entries[0]);
  EXPECT_EQ(in_order(order), (std::vector<int64_t>{5, 6, 4, 7, 2}));
}

TEST(FcfsOrder, StaysInOrderWhileEntriesComeAndGo) {
  std::mt19937_64 random(1);
  std::vector<QueueEntry> entries;
  for (int64_t id = 1; id <= 3000; ++id) {
    entries.push_back(entry(id, random() % 2 == 0 ? kLs : kBe, static_cast<int32_t>(random() % 3)));
  }
  FcfsOrder order(FcfsOrder::By::kClassFirst);
  FcfsOrder arrivals(FcfsOrder::By::kArrival);
  std::vector<bool> waits(entries.size());
  for (int round = 0; round < 20000; ++round) {
    const size_t i = random() % entries.size();
    for (FcfsOrder* queue : {&order, &arrivals}) {
      waits[i] ? queue->erase(entries[i]) : queue->insert(entries[i], {});
    }
    waits[i] = !waits[i];
  }
  std::vector<int64_t> expected;
  for (const ServiceClass service_class : {kLs, kBe}) {
    for (int32_t level = 0; level < 3; ++level) {
      for (size_t i = 0; i < entries.size(); ++i) {
        if (waits[i] && entries[i].service_class == service_class && entries[i].level == level) {
          expected.push_back(raw(entries[i].request));
        }
      }
    }
  }
  EXPECT_EQ(in_order(order), expected);
  EXPECT_EQ(order.size(kLs) + order.size(kBe), expected.size());
  std::vector<int64_t> by_arrival = expected;
  std::ranges::sort(by_arrival);
  EXPECT_EQ(in_order(arrivals), by_arrival);
  for (const ServiceClass service_class : {kLs, kBe}) {
    const auto first = std::ranges::find_if(by_arrival, [&](int64_t request) {
      return entries[static_cast<size_t>(request) - 1].service_class == service_class;
    });
    ASSERT_NE(first, by_arrival.end());
    EXPECT_EQ(raw(arrivals.head(service_class)->request), *first);
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (waits[i]) {
      order.erase(entries[i]);
    }
  }
  EXPECT_TRUE(order.next(nullptr).empty());
  EXPECT_EQ(order.head(kBe), nullptr);
}

TEST(FcfsOrderDeathTest, AnEntryThatDoesNotWaitCannotLeave) {
  FcfsOrder order(FcfsOrder::By::kArrival);
  QueueEntry waiting = entry(1);
  QueueEntry other = entry(2);
  EXPECT_DEATH(order.erase(other), "does not wait");
  order.insert(waiting, {});
  EXPECT_DEATH(order.erase(other), "does not wait");
}

}  // namespace
}  // namespace tandem
