#include "scheduler/psm_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace tandem {
namespace {

// A request whose prompt has a block for each letter. A block's name stands for all letters up to
// it.
struct Asker {
  QueueEntry entry;
  std::string text;
  std::vector<BlockHash> blocks;
};

Asker asker(int64_t request, std::string text, int32_t level = 0,
            ServiceClass service_class = kBe) {
  Asker made{.entry = {.id = SequenceId{request},
                       .request = RequestId{request},
                       .level = level,
                       .service_class = service_class},
             .text = std::move(text),
             .blocks = {}};
  for (size_t length = 1; length <= made.text.size(); ++length) {
    made.blocks.push_back({{std::hash<std::string>()(made.text.substr(0, length)), length}});
  }
  return made;
}

void put(PsmOrder& order, Asker& asker) {
  order.insert(asker.entry, {.tenant = {}, .blocks = asker.blocks});
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

TEST(PsmOrder, WalksTheTreeOfPrefixesDepthFirst) {
  std::vector<Asker> askers = {asker(1, "abc"), asker(2, "xy"),  asker(3, "abd"), asker(4, ""),
                               asker(5, "ab"),  asker(6, "xyz"), asker(7, "abc")};
  PsmOrder order(100);
  for (Asker& one : askers) {
    put(order, one);
  }
  // Whoever ends at a node goes before its branches: 4 at the root, 5 at "ab".
  EXPECT_EQ(in_order(order), (std::vector<int64_t>{4, 5, 1, 7, 3, 2, 6}));
  order.erase(askers[3].entry);
  order.erase(askers[4].entry);
  EXPECT_EQ(order.head(kBe), &askers[0].entry);
  order.erase(askers[0].entry);
  order.erase(askers[6].entry);
  EXPECT_EQ(in_order(order), (std::vector<int64_t>{3, 2, 6}));
}

TEST(PsmOrder, LatencySensitiveOnesGoFirstByArrivalAndLevelsBeforeTheTree) {
  std::vector<Asker> askers = {asker(1, "ab", 1), asker(2, "cd", 0),       asker(3, "ab", 0, kLs),
                               asker(4, "ab", 1), asker(5, "xy", -1, kLs), asker(6, "ab", 0)};
  PsmOrder order(100);
  for (Asker& one : askers) {
    put(order, one);
  }
  EXPECT_EQ(in_order(order), (std::vector<int64_t>{5, 3, 2, 6, 1, 4}));
  EXPECT_EQ(order.size(kLs), 2U);
  EXPECT_EQ(order.size(kBe), 4U);
  EXPECT_EQ(order.head(kLs), &askers[4].entry);
}

// The requests of each prefix stand together.
void expect_depth_first(const PsmOrder& order, const std::vector<Asker>& askers) {
  const std::vector<int64_t> requests = in_order(order);
  std::set<std::string> closed;
  std::string last;
  for (const int64_t request : requests) {
    const std::string& text = askers[static_cast<size_t>(request)].text;
    size_t shared = 0;
    while (shared < std::min(last.size(), text.size()) && last[shared] == text[shared]) {
      ++shared;
    }
    for (size_t length = shared + 1; length <= last.size(); ++length) {
      closed.insert(last.substr(0, length));
    }
    for (size_t length = 1; length <= text.size(); ++length) {
      ASSERT_FALSE(closed.contains(text.substr(0, length))) << text;
    }
    last = text;
  }
}

std::vector<Asker> random_askers(std::mt19937_64& random, int64_t count) {
  std::vector<Asker> askers;
  for (int64_t request = 0; request < count; ++request) {
    std::string text;
    for (size_t length = random() % 9; length > 0; --length) {
      text += static_cast<char>('a' + random() % 3);
    }
    askers.push_back(asker(request, std::move(text)));
  }
  return askers;
}

TEST(PsmOrder, StaysATreeWhileRequestsComeAndGo) {
  std::mt19937_64 random(7);
  std::vector<Asker> askers = random_askers(random, 400);
  PsmOrder order(100);
  std::set<int64_t> waits;
  for (int round = 0; round < 6000; ++round) {
    const auto i = static_cast<size_t>(random() % askers.size());
    if (waits.erase(static_cast<int64_t>(i)) == 1) {
      order.erase(askers[i].entry);
    } else {
      put(order, askers[i]);
      waits.insert(static_cast<int64_t>(i));
    }
    if (round % 50 == 0) {
      const std::vector<int64_t> requests = in_order(order);
      ASSERT_EQ(std::set<int64_t>(requests.begin(), requests.end()), waits);
      ASSERT_EQ(requests.size(), waits.size());
      expect_depth_first(order, askers);
    }
  }
  for (const int64_t i : waits) {
    order.erase(askers[static_cast<size_t>(i)].entry);
  }
  EXPECT_TRUE(order.next(nullptr).empty());
  EXPECT_EQ(order.head(kBe), nullptr);
}

// Whoever is shown first leaves, several at a time as plans admit them.
TEST(PsmOrder, TheOldestIsPassedOverAtMostKTimesInARow) {
  for (const int32_t utility : {1, 50, 67, 90, 99}) {
    const int32_t bound = (100 + 99 - utility) / (100 - utility);
    std::mt19937_64 random(static_cast<uint64_t>(utility));
    std::vector<Asker> askers = random_askers(random, 3000);
    PsmOrder order(utility);
    std::set<int64_t> waits;
    size_t arrived = 0;
    int32_t passed = 0;
    int32_t most = 0;
    while (arrived < askers.size()) {
      for (size_t n = random() % 8; n > 0 && arrived < askers.size(); --n) {
        waits.insert(static_cast<int64_t>(arrived));
        put(order, askers[arrived++]);
      }
      std::vector<int64_t> leaving = in_order(order);
      leaving.resize(std::min<size_t>(leaving.size(), random() % 7));
      for (const int64_t request : leaving) {
        passed = request == *waits.begin() ? 0 : passed + 1;
        most = std::max(most, passed);
        waits.erase(request);
        order.erase(askers[static_cast<size_t>(request)].entry);
      }
    }
    EXPECT_LE(most, bound) << utility;
    EXPECT_GE(most, std::min(bound, 50)) << utility;  // as far as the tree is followed
  }
}

TEST(PsmOrder, ManyEqualAndManyDifferentPromptsAreNoTrouble) {
  std::vector<Asker> askers;
  for (int64_t request = 0; request < 20'000; ++request) {
    askers.push_back(asker(request, request % 2 == 0 ? "same" : std::to_string(request)));
  }
  PsmOrder order(100);
  for (Asker& one : askers) {
    put(order, one);
  }
  EXPECT_EQ(in_order(order).size(), askers.size());
  for (Asker& one : askers) {
    order.erase(one.entry);
  }
  EXPECT_EQ(order.size(kBe), 0U);
}

TEST(PsmOrderDeathTest, AnEntryThatDoesNotWaitCannotLeave) {
  PsmOrder order(50);
  Asker one = asker(1, "a");
  EXPECT_DEATH(order.erase(one.entry), "does not wait");
  EXPECT_DEATH(PsmOrder(0), "utility");
}

}  // namespace
}  // namespace tandem
