#include "scheduler/budget_controller.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tandem {
namespace {

constexpr double kBucketWidth = 1.01;
constexpr double kFirstBucketNanos = 1000;
constexpr size_t kMostDropped = 256;

Nanos scaled(Nanos time, double factor) {
  return Nanos{std::llround(static_cast<double>(time.count()) * factor)};
}

double ratio(Nanos goal, Nanos measured) {
  return static_cast<double>(goal.count()) /
         static_cast<double>(std::max<int64_t>(measured.count(), 1));
}

bool is_best_effort(const SequenceView& sequence) {
  return sequence.service_class == ServiceClass::kBestEffort;
}

}  // namespace

bool BudgetGoals::any() const {
  return std::min({mean_tbt, p99_tbt, mean_ttft, p99_ttft}) < Nanos::max();
}

void TimeHistogram::add(Nanos time) {
  const double above = std::max(static_cast<double>(time.count()) / kFirstBucketNanos, 1.0);
  const auto bucket = static_cast<size_t>(std::log(above) / std::log(kBucketWidth));
  ++buckets_[std::min(bucket, kBuckets - 1)];
  ++count_;
  sum_ += time;
}

Nanos TimeHistogram::mean() const { return sum_ / count_; }

Nanos TimeHistogram::percentile(int percent) const {
  const int64_t wanted = count_ - count_ * (100 - percent) / 100;
  int64_t below = 0;
  size_t bucket = 0;
  while (bucket < kBuckets - 1 && below + buckets_[bucket] < wanted) {
    below += buckets_[bucket];
    ++bucket;
  }
  return Nanos{
      std::llround(kFirstBucketNanos * std::pow(kBucketWidth, static_cast<double>(bucket) + 1))};
}

BudgetController::BudgetController(Nanos budget, const BudgetGoals& goals)
    : began_with_(budget), goals_(goals), budget_(budget) {
  CHECK(budget > Nanos{0} && budget < Nanos::max() && goals.any(),
        "a budget of {} ns with or without goals cannot be moved", budget.count());
}

void BudgetController::observe(const SystemView& view) {
  follow(view);
  ++views_;
  const bool best_effort_waits = view.queue != nullptr
                                     ? view.queue->size(ServiceClass::kBestEffort) > 0
                                     : std::ranges::any_of(view.waiting, is_best_effort);
  with_best_effort_ +=
      best_effort_waits || std::ranges::any_of(view.running, is_best_effort) ? 1 : 0;
  if (!looked_.has_value()) {
    looked_ = view.now;
  }
  if (view.now - *looked_ >= kPeriod) {
    looked_ = view.now;
    settle();
  }
}

BudgetController::Watched BudgetController::first_look(const SequenceView& sequence, Nanos now) {
  const auto dropped = std::ranges::find(dropped_, sequence.id, &Watched::id);
  if (dropped != dropped_.end()) {
    const Watched again = *dropped;
    dropped_.erase(dropped);
    return again;
  }
  const bool begun = sequence.decodes();
  if (begun) {
    ttft_.add(now - sequence.arrived);
  }
  return {.id = sequence.id, .known_tokens = sequence.known_tokens, .begun = begun, .last = now};
}

// Both lists have the sequences in the order in which they were admitted.
void BudgetController::follow(const SystemView& view) {
  next_.clear();
  auto before = watched_.begin();
  for (const SequenceView& sequence : view.running) {
    if (is_best_effort(sequence)) {
      continue;
    }
    const auto found = std::find_if(before, watched_.end(), [&sequence](const Watched& watched) {
      return watched.id == sequence.id;
    });
    if (found == watched_.end()) {
      next_.push_back(first_look(sequence, view.now));
      continue;
    }
    before = found + 1;
    Watched& watched = next_.emplace_back(*found);
    if (sequence.known_tokens > watched.known_tokens) {
      if (watched.begun) {
        tbt_.add(view.now - watched.last);
      } else {
        ttft_.add(view.now - sequence.arrived);
      }
      watched.known_tokens = sequence.known_tokens;
      watched.last = view.now;
      watched.begun = true;
    }
  }
  watched_.swap(next_);
}

void BudgetController::planned(Nanos least, std::span<const SequenceId> preempted) {
  least_ = std::max(least_, least);
  for (const SequenceId id : preempted) {
    const auto found = std::ranges::find(watched_, id, &Watched::id);
    if (found != watched_.end() && found->begun) {
      dropped_.push_back(*found);
    }
  }
  // Some of them were cancelled while they waited and never come back.
  if (dropped_.size() > kMostDropped) {
    dropped_.erase(dropped_.begin(), dropped_.end() - kMostDropped);
  }
}

std::optional<double> BudgetController::room(TimeHistogram& times, Nanos mean, Nanos p99) {
  constexpr int kP99 = 99;
  if (std::min(mean, p99) == Nanos::max() || times.count() < kLeastSamples) {
    return std::nullopt;
  }
  const double least = std::min(ratio(mean, times.mean()), ratio(p99, times.percentile(kP99)));
  times = {};
  return least;
}

void BudgetController::settle() {
  const std::optional<double> tbt = room(tbt_, goals_.mean_tbt, goals_.p99_tbt);
  const std::optional<double> ttft = room(ttft_, goals_.mean_ttft, goals_.p99_ttft);
  if (!tbt.has_value() && !ttft.has_value()) {
    return;
  }
  const double least_room = std::min(tbt.value_or(HUGE_VAL), ttft.value_or(HUGE_VAL));
  const bool was_used = 2 * with_best_effort_ >= views_;
  const Nanos least = std::min(least_, began_with_);
  views_ = 0;
  with_best_effort_ = 0;
  least_ = Nanos{0};
  if (least_room >= 1 && (least_room * kKept < 1 || !was_used)) {
    return;
  }
  const Nanos moved = scaled(budget_, std::clamp(least_room, 1 - kMostChange, 1 + kMostChange));
  budget_ = std::clamp(moved, least, scaled(began_with_, kMostGrowth));
}

}  // namespace tandem
