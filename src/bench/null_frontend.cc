#include "bench/null_frontend.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace tandem::bench {

namespace {

LogprobInfo made_up(int32_t alternatives) {
  LogprobInfo info{.logprob = -0.5F, .rank = 1, .top = {}};
  for (TokenId id = 0; id < alternatives; ++id) {
    info.top.push_back({.token = id, .logprob = -0.25F});
  }
  return info;
}

}  // namespace

NullFrontend::NullFrontend(NullFrontendOptions options) : options_(std::move(options)) {
  CHECK(!options_.script.empty(), "a null model needs tokens to say");
}

NullFrontend::~NullFrontend() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

FrontendLoad NullFrontend::load() const {
  const std::scoped_lock lock(mutex_);
  return {.running = std::ssize(sequences_), .waiting = 0};
}

Submission NullFrontend::submit(Request request) {
  const std::scoped_lock lock(mutex_);
  if (std::ssize(sequences_) + request.n > options_.max_sequences) {
    return Error{ErrorCode::kOverloaded, "the queue is full; retry after 1s", ""};
  }
  const RequestId id{next_request_++};
  for (int32_t choice = 0; choice < request.n; ++choice) {
    sequences_.push_back({.request = id,
                          .tag = request.sink_tag,
                          .choice = choice,
                          .prompt_tokens = static_cast<int32_t>(request.prompt.size()),
                          .left_tokens = request.sampling.max_tokens,
                          .prompt_scores = choice == 0 ? request.sampling.prompt_logprobs : -1,
                          .top = request.sampling.logprobs,
                          .sink = request.sink});
  }
  changed_.notify_all();
  return id;
}

template <class Condition>
void NullFrontend::end_where(Condition condition, FinishReason reason) {
  const std::scoped_lock lock(mutex_);
  for (Sequence& sequence : sequences_) {
    if (condition(sequence)) {
      sequence.left_tokens = 0;
      sequence.end = reason;
    }
  }
}

void NullFrontend::cancel(RequestId request) {
  end_where([&](const Sequence& sequence) { return sequence.request == request; },
            FinishReason::kCancelled);
}

void NullFrontend::stop(RequestId request, int32_t choice) {
  end_where(
      [&](const Sequence& sequence) {
        return sequence.request == request && sequence.choice == choice;
      },
      FinishReason::kStop);
}

void NullFrontend::start(std::function<bool()> is_behind) {
  is_behind_ = std::move(is_behind);
  thread_ = std::thread([this] { run(); });
}

void NullFrontend::run() {
  constexpr std::chrono::microseconds kPause{20};
  while (true) {
    Deliveries deliveries;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ending_ || !sequences_.empty(); });
      if (ending_) {
        return;
      }
      deliveries = make_step();
    }
    for (auto& [sink, events] : deliveries) {
      sink->deliver(std::move(events));
    }
    ++steps_;
    while (is_behind_()) {
      std::this_thread::sleep_for(kPause);
    }
  }
}

void NullFrontend::start_paced(Nanos interval) {
  thread_ = std::thread([this, interval] { run_paced(interval); });
}

void NullFrontend::run_paced(Nanos interval) {
  auto next = std::chrono::steady_clock::now();
  while (true) {
    next += interval;
    std::this_thread::sleep_until(next);
    Deliveries deliveries;
    {
      const std::scoped_lock lock(mutex_);
      if (ending_) {
        return;
      }
      deliveries = make_step();
    }
    delivered_at_[static_cast<size_t>(steps_ % kKeptSteps)] = clock_.now().count();
    ++steps_;
    for (auto& [sink, events] : deliveries) {
      sink->deliver(std::move(events));
    }
  }
}

NullFrontend::Deliveries NullFrontend::make_step() {
  Deliveries deliveries;
  for (Sequence& sequence : sequences_) {
    auto found = std::ranges::find_if(
        deliveries, [&](const auto& delivery) { return delivery.first == sequence.sink; });
    if (found == deliveries.end()) {
      deliveries.emplace_back(sequence.sink, std::vector<TokenEvent>());
      found = deliveries.end() - 1;
    }
    append_events(sequence, found->second);
  }
  std::erase_if(sequences_, [](const Sequence& sequence) { return sequence.left_tokens < 0; });
  return deliveries;
}

void NullFrontend::append_scores(Sequence& sequence, std::vector<TokenEvent>& events) const {
  TokenEvent scores;
  scores.kind = TokenEvent::Kind::kPrompt;
  scores.request = sequence.request;
  scores.tag = sequence.tag;
  const LogprobInfo info = made_up(sequence.prompt_scores);
  scores.prompt_logprobs = std::make_unique<std::vector<LogprobInfo>>(
      static_cast<size_t>(sequence.prompt_tokens - 1), info);
  events.push_back(std::move(scores));
  sequence.prompt_scores = -1;
}

// A sequence that has ended is left with -1 tokens.
void NullFrontend::append_events(Sequence& sequence, std::vector<TokenEvent>& events) const {
  if (sequence.prompt_scores >= 0) {
    append_scores(sequence, events);
  }
  if (sequence.left_tokens > 0) {
    TokenEvent token;
    token.request = sequence.request;
    token.tag = sequence.tag;
    token.choice = sequence.choice;
    const auto position = static_cast<size_t>(sequence.sent_tokens) % options_.script.size();
    token.token = options_.script[position];
    if (sequence.top >= 0) {
      token.logprobs = std::make_unique<LogprobInfo>(made_up(sequence.top));
    }
    events.push_back(std::move(token));
    ++sequence.sent_tokens;
    --sequence.left_tokens;
  }
  if (sequence.left_tokens == 0) {
    TokenEvent finish;
    finish.kind = TokenEvent::Kind::kFinish;
    finish.request = sequence.request;
    finish.tag = sequence.tag;
    finish.choice = sequence.choice;
    finish.finish = std::make_unique<FinishInfo>();
    finish.finish->reason = sequence.end;
    finish.finish->prompt_tokens = sequence.prompt_tokens;
    finish.finish->output_tokens = sequence.sent_tokens;
    events.push_back(std::move(finish));
    sequence.left_tokens = -1;
  }
}

}  // namespace tandem::bench
