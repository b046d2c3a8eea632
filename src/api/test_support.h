// For the tests of api/: a Frontend that does as it is told, and a plain blocking HTTP client on a
// real socket.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/server.h"
#include "openai/test_support.h"
#include "request/frontend.h"

namespace tandem::api {

// Accepts requests and keeps them; tokens come when the test emits them. Any thread.
class FakeFrontend final : public Frontend {
 public:
  explicit FakeFrontend(ServedModel model = openai::tiny_model()) : model_(std::move(model)) {}

  struct Choice {
    RequestId request;
    int32_t choice;
  };

  [[nodiscard]] const ServedModel& model() const override { return model_; }
  [[nodiscard]] ServingState state() const override { return state_; }
  [[nodiscard]] FrontendLoad load() const override { return {.running = 2, .waiting = 3}; }
  Submission submit(Request request) override;
  void cancel(RequestId request) override;
  void stop(RequestId request, int32_t choice) override;

  void set_state(ServingState state) { state_ = state; }
  [[nodiscard]] std::string failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  void fail(std::string reason) {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(reason);
    state_ = ServingState::kFailed;
  }
  // Called with the position of a request: an error refuses it.
  void set_gate(std::function<Status(size_t)> gate) { gate_ = std::move(gate); }
  // Every accepted request gets this text at once and ends with kLength.
  void answer_at_once(std::string text) { instant_ = std::move(text); }
  void answer_only_when_told() { instant_.reset(); }
  // Before any request.
  void set_max_model_len(int32_t tokens) { model_.max_model_len = tokens; }

  // The n-th request submitted, waited for.
  Request& request(size_t n);
  void wait_for_cancels(size_t count);
  void wait_for_stops(size_t count);
  [[nodiscard]] size_t submitted() const;
  [[nodiscard]] std::vector<Choice> stops() const;

  // In one delivery: the events as they are, with request, tag and sink filled in.
  void emit(size_t n, std::vector<TokenEvent> events);
  void emit_text(size_t n, std::string_view text) { emit(n, openai::text_events(text)); }
  void emit_finish(size_t n, FinishReason reason = FinishReason::kLength);

 private:
  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, Condition condition);

  ServedModel model_;
  std::atomic<ServingState> state_{ServingState::kReady};
  std::function<Status(size_t)> gate_;
  std::optional<std::string> instant_;
  mutable std::mutex mutex_;  // guards what follows
  std::string failure_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Request>> requests_;
  std::vector<RequestId> cancels_;
  std::vector<Choice> stops_;
};

struct ClientResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
};

// A connection to 127.0.0.1. Reads fail the test after 20 seconds.
class Client {
 public:
  explicit Client(uint16_t port, int receive_buffer_bytes = 0);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(std::string_view bytes);
  void get(std::string_view path, std::string_view headers = "");
  void post(std::string_view path, std::string_view body, std::string_view headers = "");
  ClientResponse read_response(std::string_view method = "GET");
  // Whatever comes, up to and including `end`.
  std::string read_until(std::string_view end);
  // The server has closed the connection (what it sent before is thrown away).
  bool closed_by_server();
  void close();
  // The next close() resets the connection.
  void reset_on_close();

 private:
  bool read_more();
  int socket_ = -1;
  std::string received_;
};

// Holds up the side threads that render chats: its pass() is ServerOptions::local_time, which each
// chat asks once. Any thread.
class Gate {
 public:
  // Waits until it is let through.
  std::chrono::local_seconds pass();
  void wait_for_arrivals(int count);  // in all
  void let_through(int count);        // so many more
  void open();                        // for all

 private:
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  int arrived_ = 0;
  int passed_ = 0;
  int allowed_ = 0;
};
// A chat that is not parsed on the I/O thread.
std::string long_chat();

// A server on a free port, with short ticks and its own time.
std::unique_ptr<Server> start_server(ServerOptions options,
                                     const std::vector<openai::ModelServices>& models);

// A server on a free port with a fake Frontend behind it.
struct TestServer {
  explicit TestServer(ServerOptions options = {});
  ClientResponse get(std::string_view path, std::string_view headers = "");
  ClientResponse post(std::string_view path, std::string_view body, std::string_view headers = "");
  [[nodiscard]] uint16_t port() const { return server->port(); }
  // Waits until `condition` holds, or fails the test after 20 seconds.
  void eventually(const std::function<bool()>& condition);

  openai::TestModel test_model;
  FakeFrontend frontend;
  std::unique_ptr<Server> server;
};

}  // namespace tandem::api
