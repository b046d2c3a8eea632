#include "device/cpu/op_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "device/op_queries.h"

namespace tandem::device {
namespace {

class TimedWork final : public StreamWork {
 public:
  TimedWork(std::unique_ptr<StreamWork> work, OpListener& listener)
      : work_(std::move(work)), listener_(listener) {}

  void run(const Op& op) override {
    const auto began = std::chrono::steady_clock::now();
    work_->run(op);
    listener_.add(op, Nanos(std::chrono::steady_clock::now() - began));
  }
  void before_event() override { work_->before_event(); }
  void after_pause() override { work_->after_pause(); }

 private:
  std::unique_ptr<StreamWork> work_;
  OpListener& listener_;
};

}  // namespace

void OpTimes::add(const Op& op, Nanos time) {
  Key key{.kind = op.index()};
  if (const WeightMatrix* weights = product_weights(op)) {
    key.n = weights->n;
    key.k = weights->k;
  }
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(keys_, key);
  const auto index = static_cast<size_t>(found - keys_.begin());
  if (found == keys_.end()) {
    const std::string name = label_of(op).name;
    keys_.push_back(key);
    times_.push_back({.name = key.n == 0 ? name : fmt::format("{} {} x {}", name, key.n, key.k)});
  }
  times_[index].count += 1;
  times_[index].total += time;
}

std::vector<OpTime> OpTimes::take() {
  const std::lock_guard lock(mutex_);
  keys_.clear();
  return std::exchange(times_, {});
}

std::unique_ptr<StreamWork> timed(std::unique_ptr<StreamWork> work, OpListener& listener) {
  return std::make_unique<TimedWork>(std::move(work), listener);
}

}  // namespace tandem::device
