#include "scheduler/host_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tandem {
namespace {

std::vector<SequenceView> views(const std::vector<int64_t>& ids) {
  std::vector<SequenceView> made;
  for (const int64_t id : ids) {
    made.push_back({.id = SequenceId{id}, .tier = Tier::kHost});
  }
  return made;
}

std::vector<int64_t> sorted(HostQueue& queue, const std::vector<int64_t>& ids) {
  std::vector<SequenceView> order;
  queue.sort(views(ids), order);
  std::vector<int64_t> names;
  std::ranges::transform(order, std::back_inserter(names),
                         [](const SequenceView& view) { return raw(view.id); });
  return names;
}

using Ids = std::vector<int64_t>;

TEST(HostQueue, SequencesThatMakeRoomStandBeforeThoseThatCameEarlier) {
  HostQueue queue;
  EXPECT_EQ(sorted(queue, {3, 5}), (Ids{3, 5}));
  const std::vector<SequenceId> leave = {SequenceId{9},
                                         SequenceId{7}};  // the last one leaves first
  queue.push_front(leave);
  EXPECT_EQ(sorted(queue, {3, 5, 7, 9}), (Ids{7, 9, 3, 5}));
}

TEST(HostQueue, OtherSequencesJoinTheBack) {
  HostQueue queue;
  EXPECT_EQ(sorted(queue, {4}), (Ids{4}));
  EXPECT_EQ(sorted(queue, {1, 2, 4}), (Ids{4, 1, 2}));
}

TEST(HostQueue, ASequenceThatIsGoneIsForgotten) {
  HostQueue queue;
  EXPECT_EQ(sorted(queue, {1, 2, 3}), (Ids{1, 2, 3}));
  EXPECT_EQ(sorted(queue, {2, 3}), (Ids{2, 3}));
  EXPECT_EQ(sorted(queue, {1, 2, 3}), (Ids{2, 3, 1})) << "it comes anew";
  const std::vector<SequenceId> never_came = {SequenceId{8}};
  queue.push_front(never_came);
  EXPECT_EQ(sorted(queue, {1, 2, 3}), (Ids{2, 3, 1}));
}

}  // namespace
}  // namespace tandem
