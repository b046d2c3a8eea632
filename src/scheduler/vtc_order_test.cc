#include "scheduler/vtc_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "plan/fcfs_order.h"
#include "scheduler/split_order.h"

namespace tandem {
namespace {

// Requests of numbered tenants, in the order of their arrival.
class Tenants {
 public:
  explicit Tenants(QueueOrder& order) : order_(order) {}

  QueueEntry& ask(int64_t tenant, int32_t prompt, int32_t level = 0,
                  ServiceClass service_class = kLs) {
    const auto number = std::ssize(entries_) + 1;
    entries_.push_back({.id = SequenceId{number},
                        .request = RequestId{number},
                        .level = level,
                        .prompt_tokens = prompt,
                        .service_class = service_class});
    tenants_.push_back(tenant);
    order_.insert(entries_.back(), {.tenant = name(tenant), .blocks = {}});
    return entries_.back();
  }

  // As the engine admits the entry.
  void admit(QueueEntry& entry) {
    order_.erase(entry);
    if (!entry.was_admitted) {
      order_.count_served(entry, name(tenant_of(entry)), entry.prompt_tokens, 0);
      entry.was_admitted = true;
    }
  }
  void put_back(QueueEntry& entry) {
    order_.insert(entry, {.tenant = name(tenant_of(entry)), .blocks = {}});
  }
  void output(const QueueEntry& entry, int32_t tokens) {
    order_.count_served(entry, name(tenant_of(entry)), 0, tokens);
  }

  [[nodiscard]] int64_t tenant_of(const QueueEntry& entry) const {
    return tenants_[static_cast<size_t>(raw(entry.request)) - 1];
  }
  [[nodiscard]] std::vector<int64_t> tenants_in_order() const {
    std::vector<int64_t> tenants;
    for (auto run = order_.next(nullptr); !run.empty(); run = order_.next(run.back())) {
      for (const QueueEntry* waiting : run) {
        tenants.push_back(tenant_of(*waiting));
      }
    }
    return tenants;
  }
  QueueEntry& first() { return *order_.next(nullptr).front(); }

 private:
  static BlockHash name(int64_t tenant) { return {{static_cast<uint64_t>(tenant), 7}}; }

  QueueOrder& order_;
  std::deque<QueueEntry> entries_;
  std::vector<int64_t> tenants_;
};

using Line = std::vector<int64_t>;

TEST(VtcOrder, TenantsTakeTurnsByTheTokensOfTheirPrompts) {
  VtcOrder order;
  Tenants tenants(order);
  for (int i = 0; i < 4; ++i) {
    tenants.ask(1, 100);
  }
  tenants.ask(2, 50);
  tenants.ask(2, 50);
  tenants.ask(2, 50);
  EXPECT_EQ(tenants.tenants_in_order(), (Line{1, 2, 2, 1, 2, 1, 1}));
  EXPECT_EQ(order.size(kLs), 7U);
  EXPECT_EQ(order.head(kLs), &tenants.first());
  EXPECT_EQ(order.head(kBe), nullptr);
}

// What is read ahead is what admitting one after another gives.
TEST(VtcOrder, TheLineIsTheOrderOfAdmissionsOneByOne) {
  std::mt19937 random(5);
  for (int world = 0; world < 50; ++world) {
    VtcOrder order;
    Tenants tenants(order);
    const int requests = 1 + static_cast<int>(random() % 200);
    for (int i = 0; i < requests; ++i) {
      QueueEntry& entry =
          tenants.ask(static_cast<int64_t>(random() % 5), 1 + static_cast<int32_t>(random() % 300),
                      static_cast<int32_t>(random() % 2));
      if (random() % 8 == 0) {
        tenants.output(entry, static_cast<int32_t>(random() % 100));
      }
    }
    const Line line = tenants.tenants_in_order();
    ASSERT_EQ(line.size(), static_cast<size_t>(requests));
    for (const int64_t tenant : line) {
      EXPECT_EQ(tenants.tenant_of(tenants.first()), tenant);
      tenants.admit(tenants.first());
    }
    EXPECT_EQ(order.size(kLs), 0U);
    EXPECT_TRUE(order.next(nullptr).empty());
  }
}

TEST(VtcOrder, OutputTokensCountTwice) {
  VtcOrder order;
  Tenants tenants(order);
  QueueEntry& runs = tenants.ask(1, 10);
  tenants.admit(runs);
  tenants.ask(2, 10);
  tenants.ask(1, 10);
  EXPECT_EQ(tenants.tenants_in_order(), (Line{2, 1})) << "equal counters: the older request";
  tenants.ask(2, 10);
  tenants.output(runs, 6);  // tenant 1 is at 22, tenant 2 at 10 (raised) and then 20
  EXPECT_EQ(tenants.tenants_in_order(), (Line{2, 2, 1}));
}

TEST(VtcOrder, ATenantThatComesBackHasNoCreditAndNoDebtOfOthers) {
  VtcOrder order;
  Tenants tenants(order);
  for (int i = 0; i < 10; ++i) {
    tenants.admit(tenants.ask(1, 100));
  }
  tenants.ask(1, 100);
  // Tenant 2 was never there: without the raised counter it would go first ten times.
  for (int i = 0; i < 3; ++i) {
    tenants.ask(2, 100);
  }
  tenants.ask(1, 100);
  EXPECT_EQ(tenants.tenants_in_order(), (Line{1, 2, 2, 1, 2}));
}

TEST(VtcOrder, ASequenceThatWaitsAgainIsNotCountedTwice) {
  VtcOrder order;
  Tenants tenants(order);
  QueueEntry& dropped = tenants.ask(1, 1000);
  tenants.ask(2, 600);
  tenants.ask(2, 600);
  tenants.ask(2, 600);
  tenants.admit(dropped);  // tenant 1 is at 1000
  tenants.put_back(dropped);
  tenants.ask(1, 1);
  EXPECT_EQ(tenants.tenants_in_order(), (Line{2, 2, 1, 1, 2}));
}

TEST(VtcOrder, LowerLevelsGoFirst) {
  VtcOrder order;
  Tenants tenants(order);
  tenants.ask(1, 10, 5);
  tenants.ask(2, 10, -1);
  tenants.ask(2, 10, 0);
  tenants.ask(1, 10, 0);
  EXPECT_EQ(tenants.tenants_in_order(), (Line{2, 1, 2, 1}));
}

// Two tenants that always have requests waiting get the same service, whatever the lengths.
TEST(VtcOrder, BackloggedTenantsGetEqualService) {
  VtcOrder order;
  Tenants tenants(order);
  std::mt19937 random(3);
  int64_t served[2] = {};
  const int32_t lengths[2] = {500, 20};
  for (int i = 0; i < 40; ++i) {
    tenants.ask(i % 2, lengths[i % 2]);
  }
  for (int i = 0; i < 2000; ++i) {
    QueueEntry& next = tenants.first();
    const int64_t tenant = tenants.tenant_of(next);
    const auto output = static_cast<int32_t>(random() % 50);
    tenants.admit(next);
    tenants.output(next, output);
    served[tenant] += next.prompt_tokens + 2 * output;
    tenants.ask(tenant, lengths[tenant]);
    EXPECT_LE(std::abs(served[0] - served[1]), 500 + 2 * 50);
  }
}

// A tenant that is forgotten is not charged for later output tokens of its sequences.
TEST(VtcOrder, TenantsWithoutRequestsAreForgotten) {
  constexpr int64_t kAbsent = 4000;
  VtcOrder order;
  Tenants tenants(order);
  std::vector<QueueEntry*> running;
  for (int64_t tenant = 0; tenant <= kAbsent; ++tenant) {
    running.push_back(&tenants.ask(tenant, 10));
    tenants.admit(*running.back());
  }
  for (int64_t tenant = 0; tenant < kAbsent; ++tenant) {
    tenants.output(*running[static_cast<size_t>(tenant)], 100'000);
  }
  // The second request of the last tenant goes before requests of charged tenants only.
  tenants.ask(kAbsent, 50'000);
  tenants.ask(kAbsent, 1);
  for (int64_t tenant = 0; tenant < kAbsent; ++tenant) {
    tenants.ask(tenant, 1);
  }
  const Line line = tenants.tenants_in_order();
  const auto charged = std::find(line.rbegin(), line.rend(), kAbsent) - line.rbegin();
  EXPECT_GT(charged, 0);
  EXPECT_LE(charged, 1100);
}

TEST(SplitOrder, EachClassHasItsOwnOrder) {
  SplitOrder order(std::make_unique<VtcOrder>(), fcfs_order(FcfsOrder::By::kClassFirst));
  Tenants tenants(order);
  tenants.ask(1, 10, 0, kBe);
  tenants.ask(1, 10, 0, kBe);
  tenants.ask(2, 10, 0, kBe);
  tenants.ask(1, 10);
  tenants.ask(1, 10);
  tenants.ask(2, 10);
  EXPECT_TRUE(order.counts_service());
  EXPECT_EQ(tenants.tenants_in_order(), (Line{1, 2, 1, 1, 1, 2}));
  EXPECT_EQ(order.size(kBe), 3U);
  EXPECT_EQ(raw(order.head(kBe)->request), 1);
  EXPECT_EQ(raw(order.head(kLs)->request), 4);
}

}  // namespace
}  // namespace tandem
