// The I/O thread's work between two looks at its sockets is bounded, counted in bytes over a real
// socket: it frees little, and a step's events wait for at most one piece of a request to be read.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "api/server.h"
#include "api/test_support.h"

namespace {

thread_local bool is_io_thread = false;
thread_local size_t freed = 0;  // since this thread looked at its sockets
// By the I/O thread.
std::atomic<size_t> max_piece_freed{0};
std::atomic<size_t> max_freed{0};  // between two looks

void free_counted(void* memory) {
  if (is_io_thread && memory != nullptr) {
    const size_t piece = malloc_usable_size(memory);
    freed += piece;
    max_piece_freed = std::max<size_t>(max_piece_freed, piece);
    max_freed = std::max<size_t>(max_freed, freed);
  }
  std::free(memory);
}

}  // namespace

// Asio looks at its sockets here, after the handlers that were due.
int epoll_wait(int epoll, epoll_event* events, int max_events, int timeout) {
  freed = 0;
  return epoll_pwait(epoll, events, max_events, timeout, nullptr);
}

void* operator new(size_t bytes) {
  void* memory = std::malloc(bytes);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
void operator delete(void* memory) noexcept { free_counted(memory); }
void operator delete(void* memory, size_t /*bytes*/) noexcept { free_counted(memory); }

namespace tandem::api {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr std::string_view kPrompt = R"({"prompt":"a"})";

// Long prompts are submitted by side threads.
ServerOptions submitting_aside() {
  ServerOptions options;
  options.inline_submit_bytes = 1000;
  return options;
}

// A server whose I/O thread is watched; its other threads are not.
struct WatchedServer {
  explicit WatchedServer(ServerOptions options = {}) : test(std::move(options)) {
    test.frontend.set_gate([this](size_t n) {
      is_io_thread = is_io_thread || watching;
      if (n == held_up) {
        gate.pass();
      }
      return Status();
    });
    test.frontend.answer_at_once("x");
    EXPECT_EQ(test.post("/v1/completions", kPrompt).status, 200);
    watching = false;
    max_piece_freed = max_freed = 0;
  }
  // Two prompts of so many tokens fit; they are answered when the test says so.
  void take_prompts_of(size_t tokens) {
    test.frontend.set_max_model_len(2 * tokens);
    test.frontend.answer_only_when_told();
  }
  // Once the connections of the test are closed.
  void expect_little_freed() {
    test.eventually([&] {
      return test.server->metrics().connections == 0 && test.server->metrics().generations == 0;
    });
    expect_little_freed_so_far();
  }
  void expect_little_freed_so_far() {
    EXPECT_EQ(test.get("/health").status, 200) << "the handlers before it have ended";
    check_freed();
  }
  static void check_freed() {
    EXPECT_LE(max_piece_freed.exchange(0), kMiB + kMiB / 16);
    EXPECT_LE(max_freed.exchange(0), 2 * kMiB);
  }

  std::atomic<bool> watching{true};
  std::atomic<size_t> held_up =
      std::numeric_limits<size_t>::max();  // the request that passes the gate
  Gate gate;
  TestServer test;
};

std::string long_body() { return R"({"prompt":")" + std::string(5 * kMiB, 'a') + "\"}"; }

std::string head(size_t length) {
  return fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
                     length);
}

TEST(IoThreadWork, BodiesAreFreedElsewhere) {
  ServerOptions options;
  options.limits.http.max_body_bytes = 6 * kMiB;
  WatchedServer watched(std::move(options));
  TestServer& test = watched.test;
  const std::string body = long_body();
  EXPECT_EQ(test.post("/v1/completions", body).status, 400) << "longer than the context";
  {
    Client leaves(test.port());
    leaves.send(head(body.size()) + body.substr(1));
    test.eventually(
        [&] { return test.server->metrics().request_bytes_held == std::ssize(body) - 1; });
  }
  {
    Client too_long(test.port());
    too_long.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    const std::string chunk = fmt::format("{:x}\r\n{}\r\n", kMiB, std::string(kMiB, 'a'));
    for (int i = 0; i < 7; ++i) {
      too_long.send(chunk);
    }
    EXPECT_EQ(too_long.read_response().status, 413);
  }
  watched.expect_little_freed();
}

TEST(IoThreadWork, BodiesThatNoSideThreadTakesAreFreedElsewhere) {
  Gate gate;
  ServerOptions options;
  options.side = {.threads = 2, .max_short_cost = 1000, .max_waiting = 1};
  options.local_time = [&gate] { return gate.pass(); };
  WatchedServer watched(std::move(options));
  TestServer& test = watched.test;
  const auto held = [&](size_t bytes) {
    test.eventually(
        [&] { return test.server->metrics().request_bytes_held == static_cast<int64_t>(bytes); });
  };
  const std::string body = long_body();
  const size_t chat_bytes = long_chat().size();
  Client running(test.port());
  running.post("/v1/chat/completions", long_chat());
  gate.wait_for_arrivals(1);
  for (const std::string_view path : {"/v1/completions", "/tokenize"}) {
    Client leaves(test.port());
    leaves.post(path, body);
    held(chat_bytes + body.size());
    leaves.close();
    held(chat_bytes);
  }
  watched.expect_little_freed_so_far();
  Client waiting(test.port());
  waiting.post("/v1/chat/completions", long_chat());
  held(2 * chat_bytes);
  for (const std::string_view path : {"/v1/completions", "/tokenize"}) {
    EXPECT_EQ(test.post(path, body).status, 503);
  }
  watched.expect_little_freed_so_far();
  {
    Client late(test.port());
    late.send(head(body.size()) + body.substr(1));
    held(2 * chat_bytes + body.size() - 1);
    test.server->stop_accepting();
    late.send("}");
    EXPECT_EQ(late.read_response().status, 503);
  }
  test.eventually([&] { return test.server->metrics().connections == 2; });
  WatchedServer::check_freed();
  gate.open();
}

// One prompt and its log-probabilities, in every choice's answer.
std::vector<TokenEvent> scores(int32_t tokens) {
  TokenEvent event;
  event.kind = TokenEvent::Kind::kPrompt;
  LogprobInfo info{.logprob = -0.5F, .rank = 1, .top = {}};
  for (TokenId id = 0; id < 20; ++id) {
    info.top.push_back({.token = id, .logprob = -0.25F});
  }
  event.prompt_logprobs =
      std::make_unique<std::vector<LogprobInfo>>(static_cast<size_t>(tokens - 1), info);
  std::vector<TokenEvent> events;
  events.push_back(std::move(event));
  return events;
}

TEST(IoThreadWork, AnswersAreFreedElsewhere) {
  constexpr size_t kTokens = 20'000;
  WatchedServer watched;
  TestServer& test = watched.test;
  test.frontend.set_max_model_len(2 * kTokens);
  test.frontend.answer_only_when_told();
  for (const bool streams : {true, false}) {
    for (const bool is_read : {true, false}) {
      const size_t n = test.frontend.submitted();
      Client client(test.port(), is_read ? 0 : 4096);
      client.post("/v1/completions",
                  fmt::format(R"({{"prompt":"{}","echo":true,"logprobs":20,"stream":{}}})",
                              std::string(kTokens, 'a'), streams),
                  "Connection: close\r\n");
      test.frontend.request(n);
      test.frontend.emit(n, scores(kTokens + 1));  // one begins the text
      test.frontend.emit_text(n, "b");
      test.frontend.emit_finish(n);
      if (is_read) {
        EXPECT_GT(client.read_response().body.size(), 4 * kMiB);
      } else {
        test.eventually([&] { return test.server->metrics().unsent_bytes > int64_t{4} << 20; });
      }
    }
  }
  watched.expect_little_freed();
}

TEST(IoThreadWork, EventsWithoutAReaderAreFreedElsewhere) {
  constexpr size_t kTokens = 20'000;
  WatchedServer watched(submitting_aside());
  TestServer& test = watched.test;
  watched.take_prompts_of(kTokens);
  const std::string prompt(kTokens, 'a');
  const size_t n = test.frontend.submitted();
  watched.held_up = n + 1;
  Client client(test.port());
  client.post("/v1/completions",
              fmt::format(R"({{"prompt":["{0}","{0}"],"echo":true,"logprobs":20}})", prompt));
  watched.gate.wait_for_arrivals(1);
  const auto emit_scores = [&] {
    test.frontend.emit(n, scores(kTokens + 1));
    test.eventually([&] { return test.server->metrics().pending_deliveries == 0; });
  };
  emit_scores();  // they wait, because the second prompt is being submitted
  client.close();
  test.eventually([&] { return test.server->metrics().connections == 0; });
  watched.expect_little_freed_so_far();
  emit_scores();
  watched.expect_little_freed_so_far();
  watched.gate.open();
  watched.expect_little_freed();
}

TEST(IoThreadWork, PromptsThatWaitForTheirScoresAreFreedElsewhere) {
  constexpr size_t kTokens = 400'000;
  WatchedServer watched(submitting_aside());
  TestServer& test = watched.test;
  watched.take_prompts_of(kTokens);
  const size_t n = test.frontend.submitted();
  Client client(test.port());
  client.post("/v1/completions",
              fmt::format(R"({{"prompt":"{}","prompt_logprobs":1}})", std::string(kTokens, 'a')));
  test.frontend.emit_text(n, "b");
  test.eventually([&] { return test.server->metrics().unsent_bytes > 0; });
  client.close();
  watched.expect_little_freed();
}

TEST(IoThreadWork, AStepWaitsForOnePieceOfReading) {
  constexpr int64_t kPieceBytes = 64 * 1024;
  ServerOptions options;
  options.measure_deliveries = true;
  TestServer test(std::move(options));
  Client stream(test.port());
  stream.post("/v1/completions", R"({"prompt":"a","stream":true})");
  test.frontend.request(0);
  std::vector<std::thread> threads;
  std::atomic<int> busy{4};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&test, &busy] {
      Client client(test.port());
      client.send(head(30 * kMiB));
      const std::string piece(kMiB, 'a');
      for (int sent = 0; sent < 29; ++sent) {
        client.send(piece);
      }
      --busy;
    });
  }
  int steps = 0;
  while (busy > 0 || steps < 10) {
    test.frontend.emit_text(0, "x");
    stream.read_until("\"text\":\"x\"");
    ++steps;
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  test.frontend.emit_finish(0);
  stream.read_until("data: [DONE]\n\n");
  EXPECT_LE(test.server->take_longest_delivery().bytes_read, kPieceBytes) << steps << " steps";
}

}  // namespace
}  // namespace tandem::api
