// A model that takes no time: every request gets its tokens from a fixed script, a step for all of
// them at once, as fast as whoever reads them keeps up. For measuring what stands in front of an
// engine. Not here: sockets, real text. Threads: the Frontend's functions from any; steps run on a
// thread of its own.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "request/frontend.h"

namespace tandem::bench {

struct NullFrontendOptions {
  ServedModel model;
  std::vector<TokenId> script;  // repeated for as long as a request lasts; at least one token
  int64_t max_sequences = int64_t{1} << 40;  // at a time; more are refused as by a full queue
};

class NullFrontend final : public Frontend {
 public:
  explicit NullFrontend(NullFrontendOptions options);
  ~NullFrontend() override;

  [[nodiscard]] const ServedModel& model() const override { return options_.model; }
  [[nodiscard]] ServingState state() const override { return ServingState::kReady; }
  [[nodiscard]] FrontendLoad load() const override;
  // Every choice gets max_tokens tokens and ends with kLength. Log-probabilities are made up.
  Submission submit(Request request) override;
  void cancel(RequestId request) override;
  void stop(RequestId request, int32_t choice) override;

  // Starts the steps. While `is_behind` is true, no step is made: deliveries that are still waiting
  // bound the speed.
  void start(std::function<bool()> is_behind);
  // Starts the steps, one each `interval`, as an engine with that step time makes them.
  void start_paced(Nanos interval);
  [[nodiscard]] int64_t steps() const { return steps_; }
  // When the tokens of that step were handed over, for the last kKeptSteps steps.
  static constexpr int64_t kKeptSteps = 16384;
  [[nodiscard]] Nanos delivered_at(int64_t step) const {
    return Nanos(delivered_at_[static_cast<size_t>(step % kKeptSteps)]);
  }

 private:
  struct Sequence {
    RequestId request;
    uint64_t tag;
    int32_t choice;
    int32_t prompt_tokens;
    int32_t left_tokens;
    int32_t prompt_scores = -1;  // alternatives of each prompt token; -1: not asked, or reported
    int32_t top = -1;            // alternatives of each token; -1: no log-probabilities
    int32_t sent_tokens = 0;
    FinishReason end = FinishReason::kLength;
    std::shared_ptr<TokenSink> sink;
  };
  using Deliveries = std::vector<std::pair<std::shared_ptr<TokenSink>, std::vector<TokenEvent>>>;

  void run();
  void run_paced(Nanos interval);
  Deliveries make_step();
  void append_scores(Sequence& sequence, std::vector<TokenEvent>& events) const;
  void append_events(Sequence& sequence, std::vector<TokenEvent>& events) const;
  template <class Condition>
  void end_where(Condition condition, FinishReason reason);

  NullFrontendOptions options_;
  std::function<bool()> is_behind_;
  std::atomic<int64_t> steps_{0};
  std::array<std::atomic<int64_t>, kKeptSteps> delivered_at_{};
  SteadyClock clock_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Sequence> sequences_;
  int64_t next_request_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace tandem::bench
