// Moves the step budget of a running server towards goals for latency-sensitive requests. `tandem
// tune` finds a budget before (HyGen 4.2); this follows traffic and machines that differ from what
// was tuned.
//
// Every 30 s what tokens took is held against the goals, each over the tokens since it was looked
// at last, 500 at least. The budget goes by the worst of them: down where a goal is missed, up
// where all are kept by more than 3 % and best effort was there to use it, by at most 5 % at a
// time. It never goes below what the steps of latency-sensitive requests took at least (or below
// where it began, if that is less), and never above 1.5 times where it began.
//
// Reads nothing but views, so a replay, which shows the same views, moves the budget in the same
// way. A token counts as come with the first view that shows it. Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/views.h"

namespace tandem {

// Nanos::max(): there is no such goal.
struct BudgetGoals {
  Nanos mean_tbt = Nanos::max();  // from a token to the next
  Nanos p99_tbt = Nanos::max();
  Nanos mean_ttft = Nanos::max();
  Nanos p99_ttft = Nanos::max();
  [[nodiscard]] bool any() const;
};

// Times in buckets of 1 %, from a microsecond to a quarter of an hour.
class TimeHistogram {
 public:
  void add(Nanos time);
  [[nodiscard]] int64_t count() const { return count_; }
  [[nodiscard]] Nanos mean() const;  // both need a count
  // At most so many percent of the times are longer, by the upper end of its bucket.
  [[nodiscard]] Nanos percentile(int percent) const;

 private:
  static constexpr size_t kBuckets = 2073;
  std::array<int64_t, kBuckets> buckets_{};
  int64_t count_ = 0;
  Nanos sum_{0};
};

class BudgetController {
 public:
  static constexpr Nanos kPeriod = std::chrono::seconds(30);
  static constexpr int64_t kLeastSamples = 500;
  static constexpr double kMostChange = 0.05;
  static constexpr double kMostGrowth = 1.5;
  static constexpr double kKept = 0.97;  // of a goal: from here on there is nothing to gain

  BudgetController(Nanos budget, const BudgetGoals& goals);

  // Each view, before it is planned by budget().
  void observe(const SystemView& view);
  // What came of it: the step's latency-sensitive decodes and one tile of a prompt take `least`;
  // these sequences lost their blocks and go on later.
  void planned(Nanos least, std::span<const SequenceId> preempted);
  [[nodiscard]] Nanos budget() const { return budget_; }

 private:
  struct Watched {
    SequenceId id{};
    int32_t known_tokens = 0;
    bool begun = false;  // its first token has come
    Nanos last{0};       // token
  };
  [[nodiscard]] Watched first_look(const SequenceView& sequence, Nanos now);
  void follow(const SystemView& view);
  // The goal over what was measured, if there is enough: below 1 it is missed.
  static std::optional<double> room(TimeHistogram& times, Nanos mean, Nanos p99);
  void settle();

  const Nanos began_with_;
  const BudgetGoals goals_;
  Nanos budget_;
  std::vector<Watched> watched_;  // in the order of SystemView::running
  std::vector<Watched> next_;
  std::vector<Watched> dropped_;
  TimeHistogram tbt_;
  TimeHistogram ttft_;
  std::optional<Nanos> looked_;
  Nanos least_{0};
  int64_t views_ = 0;
  int64_t with_best_effort_ = 0;
};

}  // namespace tandem
