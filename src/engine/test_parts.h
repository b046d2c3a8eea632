// The parts of an engine, put together by hand for tests of one of them.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "plan/fcfs_order.h"
#include "support/echo_executor.h"
#include "support/virtual_world.h"

namespace tandem::testing {

// Keeps the events of one request.
struct KeepingSink final : TokenSink {
  void deliver(std::vector<TokenEvent> delivered) override {
    ++deliveries;
    for (TokenEvent& event : delivered) {
      events.push_back(std::move(event));
    }
  }
  int deliveries = 0;
  std::vector<TokenEvent> events;
};

// Blocks of 4 tokens: 32 on the accelerator, 16 on the host.
struct EngineTestParts {
  explicit EngineTestParts(FcfsOrder::By order = FcfsOrder::By::kClassFirst)
      : table(fcfs_order(order)) {}
  ~EngineTestParts() {
    mover.release_all();
    table.release_all(kv);
  }
  EngineTestParts(const EngineTestParts&) = delete;
  EngineTestParts& operator=(const EngineTestParts&) = delete;

  static EchoOptions echo() {
    EchoOptions options;
    options.limits.host_blocks = 16;
    options.limits.offloaded_sequences = 4;
    return options;
  }

  // A request that waits. Its prompt is 1, 2, ...
  LiveSequence& add(int64_t id, int32_t prompt_tokens, Request request = {}) {
    request.prompt.resize(static_cast<size_t>(prompt_tokens));
    std::iota(request.prompt.begin(), request.prompt.end(), 1);
    request.sampling.max_tokens = 20;
    request.sink = sink;
    Arrival arrival =
        Engine::make_arrival(RequestId{id}, std::move(request), Nanos{0}, kv.block_tokens());
    std::shared_ptr<RequestState> owner = table.new_request();
    owner->id = arrival.id;
    owner->root = arrival.root;
    owner->request = std::move(arrival.request);
    return table.add(std::move(owner), std::move(arrival.prompt_hashes));
  }
  LiveSequence& add_flex(int64_t id, int32_t prompt_tokens) {
    Request request;
    request.service_class = ServiceClass::kBestEffort;
    return add(id, prompt_tokens, std::move(request));
  }
  // A sequence that runs, has computed its prompt and got one token.
  LiveSequence& add_decoding(int64_t id, int32_t prompt_tokens) {
    LiveSequence& sequence = add(id, prompt_tokens);
    table.admit(sequence);
    EXPECT_TRUE(kv.grow(sequence.kv, prompt_tokens));
    sequence.computed_tokens = prompt_tokens;
    sequence.tokens.push_back(7);
    table.change(sequence, SequenceState::kDecoding);
    return sequence;
  }
  void expect_sound() const {
    std::vector<const SequenceKv*> users;
    for (const Status& status : {table.audit(users), mover.audit(users), kv.audit(users)}) {
      EXPECT_TRUE(status.ok()) << status.error().message;
    }
  }

  ManualClock clock;
  std::shared_ptr<KeepingSink> sink = std::make_shared<KeepingSink>();
  EchoExecutor executor{echo(), clock};
  KvManager kv{32, 4, PrefixCaching::kOn, 16};
  CurrentStep step;
  SequenceTable table;
  EventOutbox outbox{2};
  ShortfallLog shortfalls{"test", kv, step};
  TierMover mover{
      {.max_running = 8, .fetch = {.max_running = 8}}, table, kv, executor, step, shortfalls};
  SequenceFinisher finisher{table, mover, outbox, observe::no_observer(), nullptr};
};

}  // namespace tandem::testing
