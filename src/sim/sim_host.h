// The host's attention in virtual time: one server of the memory's bandwidth, first come, first
// served, and workers who pay for each task beside each other. Computes nothing. One thread.
#pragma once

#include <deque>
#include <vector>

#include "base/virtual_time.h"
#include "piggyback/attention_host.h"

namespace tandem::sim {

// Truth: nobody plans by it.
struct SimHostSpec {
  double bytes_per_second = 150e9;  // of K and V, by all workers together
  int32_t workers = 32;
  Nanos task{std::chrono::microseconds(3)};  // that a worker takes for each task beside reading
};

class SimHost final : public piggyback::AttentionHost, private VirtualTime::Actor {
 public:
  // `time` must outlive it.
  SimHost(VirtualTime& time, const SimHostSpec& host, piggyback::AttentionSpec spec)
      : time_(time), host_(host), spec_(std::move(spec)) {}

  void submit(std::span<const piggyback::HopTask> tasks) override;
  void take_answers(std::vector<piggyback::HopAnswer>& answers) override;
  void withdraw(piggyback::HopId hop, int32_t attempt) override;
  void set_listener(piggyback::AnswerListener listener) override {
    listener_ = std::move(listener);
  }
  [[nodiscard]] piggyback::AttentionHostCounts counts() const override { return counts_; }
  [[nodiscard]] int64_t waiting() const override { return std::ssize(open_); }
  void rest() override { time_.step(); }
  [[nodiscard]] bool computes() const override { return false; }

 private:
  void on_time(int64_t what) override;
  [[nodiscard]] int64_t bytes_of(const piggyback::HopTask& task) const;

  VirtualTime& time_;
  const SimHostSpec host_;
  const piggyback::AttentionSpec spec_;
  piggyback::AnswerListener listener_;
  piggyback::AttentionHostCounts counts_;
  Nanos free_at_{0};
  std::deque<piggyback::HopAnswer> open_;  // in the order of their ends
  std::vector<piggyback::HopAnswer> answers_;
};

}  // namespace tandem::sim
