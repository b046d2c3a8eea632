// A model that takes no time: every request gets its tokens from a fixed script, a step for all of
// them at once, as fast as whoever reads them keeps up. For measuring what stands in front of an
// engine. Not here: sockets, real text. Threads: the Frontend's functions from any; steps run on a
// thread of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "request/frontend.h"

namespace tandem::bench {

struct NullFrontendOptions {
  ServedModel model;
  std::vector<TokenId> script;  // repeated for as long as a request lasts; at least one token
};

class NullFrontend final : public Frontend {
 public:
  explicit NullFrontend(NullFrontendOptions options);
  ~NullFrontend() override;

  [[nodiscard]] const ServedModel& model() const override { return options_.model; }
  [[nodiscard]] ServingState state() const override { return ServingState::kReady; }
  [[nodiscard]] FrontendLoad load() const override;
  // Every choice gets max_tokens tokens and ends with kLength.
  Result<RequestId> submit(Request request) override;
  void cancel(RequestId request) override;
  void stop(RequestId request, int32_t choice) override;

  // Starts the steps. While `is_behind` is true, no step is made: deliveries that are still waiting
  // bound the speed.
  void start(std::function<bool()> is_behind);
  [[nodiscard]] int64_t steps() const { return steps_; }

 private:
  struct Sequence {
    RequestId request;
    uint64_t tag;
    int32_t choice;
    int32_t prompt_tokens;
    int32_t left_tokens;
    int32_t sent_tokens = 0;
    FinishReason end = FinishReason::kLength;
    std::shared_ptr<TokenSink> sink;
  };
  using Deliveries = std::vector<std::pair<std::shared_ptr<TokenSink>, std::vector<TokenEvent>>>;

  void run();
  Deliveries make_step();
  void append_events(Sequence& sequence, std::vector<TokenEvent>& events) const;
  template <class Condition>
  void end_where(Condition condition, FinishReason reason);

  NullFrontendOptions options_;
  std::function<bool()> is_behind_;
  std::atomic<int64_t> steps_{0};
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Sequence> sequences_;
  int64_t next_request_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace tandem::bench
