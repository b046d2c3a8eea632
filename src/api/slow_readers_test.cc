// Readers that do not take a stream are cut off, also while a side thread writes it.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/server.h"
#include "api/test_support.h"

namespace tandem::api {
namespace {

// One thread does all the work beside the loop, and chats hold it up while events collect.
TEST(SlowReaders, AreCutWhileTheirEventsAreTakenBesideTheLoop) {
  Gate gate;
  ServerOptions options;
  options.inline_answer_bytes = 1;
  options.inline_events = 100;
  options.side = {.threads = 2, .max_short_cost = 0};
  options.limits.socket_send_buffer_bytes = 4096;
  options.limits.max_unsent_bytes = 100'000;
  options.local_time = [&gate] { return gate.pass(); };
  TestServer test(std::move(options));
  const auto dispatched = [&] { return test.server->metrics().pending_deliveries == 0; };
  const auto queue_chat = [&](Client& client) {  // behind one that waits at the gate
    client.post("/v1/chat/completions", long_chat());
    const int64_t both = 2 * std::ssize(long_chat());
    test.eventually([&] { return test.server->metrics().request_bytes_held == both; });
  };
  Client unread(test.port(), 4096);
  unread.post("/v1/completions", R"({"prompt":"abc","echo":true,"logprobs":1,"stream":true})");
  test.frontend.request(0);

  Client first(test.port());
  first.post("/v1/chat/completions", long_chat());
  gate.wait_for_arrivals(1);
  TokenEvent scores{.kind = TokenEvent::Kind::kPrompt};
  scores.prompt_logprobs = std::make_unique<std::vector<LogprobInfo>>(3);
  std::vector<TokenEvent> events;
  events.push_back(std::move(scores));
  test.frontend.emit(0, std::move(events));
  test.frontend.emit_text(0, std::string(500, 'x'));
  test.eventually(dispatched);

  // The events above wait behind the chats; those that follow collect while they are written.
  Client second(test.port());
  queue_chat(second);
  gate.let_through(1);
  unread.read_until("\"text\":\"abc\"");
  gate.wait_for_arrivals(2);
  Client third(test.port());
  queue_chat(third);
  test.frontend.emit_text(0, std::string(5000, 'x'));
  test.eventually(dispatched);
  gate.let_through(1);
  unread.read_until("\"text\":\"x\"");
  gate.wait_for_arrivals(3);
  test.frontend.emit_text(0, std::string(500, 'x'));
  test.eventually(dispatched);
  EXPECT_EQ(test.server->metrics().slow_readers_cut, 0);
  gate.open();
  test.eventually([&] { return test.server->metrics().slow_readers_cut == 1; });
  test.frontend.wait_for_cancels(1);
}

}  // namespace
}  // namespace tandem::api
