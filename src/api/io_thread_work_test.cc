// The I/O thread's work per handler is bounded, counted in bytes over a real socket: it frees
// nothing large, and a step's events wait for at most one piece of a request to be read.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "api/server.h"
#include "api/test_support.h"

namespace {

thread_local bool is_io_thread = false;
std::atomic<size_t> most_freed{0};  // by the I/O thread, in one go

void free_counted(void* memory) {
  if (is_io_thread && memory != nullptr) {
    most_freed = std::max<size_t>(most_freed, malloc_usable_size(memory));
  }
  std::free(memory);
}

}  // namespace

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

// A server whose I/O thread is watched; its other threads are not.
struct WatchedServer {
  explicit WatchedServer(ServerOptions options = {}) : test(std::move(options)) {
    test.frontend.set_gate([this](size_t) {
      is_io_thread = is_io_thread || watching;
      return Status();
    });
    test.frontend.answer_at_once("x");
    EXPECT_EQ(test.post("/v1/completions", kPrompt).status, 200);
    watching = false;
    most_freed = 0;
  }
  // Once the connections of the test are closed.
  void expect_nothing_large_freed() {
    test.eventually([&] {
      return test.server->metrics().connections == 0 && test.server->metrics().generations == 0;
    });
    EXPECT_LE(most_freed, kMiB + kMiB / 16);
  }

  std::atomic<bool> watching{true};
  TestServer test;
};

std::string head(size_t length) {
  return fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
                     length);
}

TEST(IoThreadWork, BodiesAreFreedElsewhere) {
  ServerOptions options;
  options.limits.http.max_body_bytes = 6 * kMiB;
  WatchedServer watched(std::move(options));
  TestServer& test = watched.test;
  const std::string body = R"({"prompt":")" + std::string(5 * kMiB, 'a') + "\"}";
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
  watched.expect_nothing_large_freed();
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
  watched.expect_nothing_large_freed();
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
    ++steps;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
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
