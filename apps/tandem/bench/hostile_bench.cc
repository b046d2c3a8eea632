#include "bench/hostile_bench.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <malloc.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "api/server.h"
#include "base/clock.h"
#include "base/log.h"
#include "bench/hostile_requests.h"
#include "bench/null_frontend.h"

namespace tandem::bench {

namespace {

constexpr std::string_view kKey = "bench";
constexpr int32_t kEndless = 60'000;

class Socket {
 public:
  explicit Socket(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ =
        fd_ >= 0 && ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~Socket() { ::close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }
  [[nodiscard]] int fd() const { return fd_; }
  // False when the server has closed the connection.
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) {
        return false;
      }
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

 private:
  int fd_;
  bool connected_ = false;
};

std::string head_of(std::string_view path, size_t length, bool with_key) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\nContent-Length: {}\r\n{}\r\n", path,
      length, with_key ? fmt::format("Authorization: Bearer {}\r\n", kKey) : "");
}

struct Stall {
  Nanos clock{0};
  Nanos worked{0};  // of it the I/O thread was at work
  int64_t tokens = 0;
};

// The neighbour's streams, read on one thread. A chunk belongs to the step whose turn it is in its
// stream: the first is of the newest step, and each step after that brings one.
class Neighbour {
 public:
  Neighbour(const api::Server& server, const NullFrontend& frontend, int32_t streams)
      : server_(server), frontend_(frontend) {
    const std::string body =
        fmt::format(R"({{"prompt":"hello","stream":true,"max_tokens":{}}})", kEndless);
    for (int32_t i = 0; i < streams; ++i) {
      sockets_.push_back(std::make_unique<Socket>(server.port()));
      sockets_.back()->send(head_of("/v1/completions", body.size(), true) + body);
      polls_.push_back({.fd = sockets_.back()->fd(), .events = POLLIN, .revents = 0});
    }
    next_step_.resize(polls_.size(), -1);
    ends_.resize(polls_.size(), '\0');
    worked_ = server.io_thread_time();
  }

  // Reads until `done`; false when a stream ended or nothing comes any more.
  template <class Condition>
  bool read_until(Condition done, Stall& stall) {
    constexpr int kPatienceMillis = 120'000;
    while (!done()) {
      if (::poll(polls_.data(), polls_.size(), kPatienceMillis) <= 0) {
        return false;
      }
      const Nanos worked = server_.io_thread_time();
      for (size_t i = 0; i < polls_.size(); ++i) {
        if (polls_[i].revents != 0 && !read(i, worked - worked_, stall)) {
          return false;
        }
      }
      worked_ = worked;
    }
    return true;
  }

 private:
  bool read(size_t i, Nanos worked, Stall& stall) {
    const ssize_t bytes = ::recv(polls_[i].fd, buffer_.data(), buffer_.size(), 0);
    if (bytes <= 0) {
      return false;
    }
    const Nanos now = clock_.now();
    char& before = ends_[i];
    for (const char byte : std::string_view(buffer_.data(), static_cast<size_t>(bytes))) {
      if (byte == '\n' && before == '\n') {  // the end of an event
        int64_t& step = next_step_[i];
        if (step < 0) {
          step = frontend_.steps() - 1;
        }
        const Nanos waited = now - frontend_.delivered_at(step);
        stall.clock = std::max(stall.clock, waited);
        stall.worked = std::max(stall.worked, std::min(waited, worked));
        ++stall.tokens;
        ++step;
      }
      before = byte;
    }
    return true;
  }

  const api::Server& server_;
  const NullFrontend& frontend_;
  const SteadyClock clock_;
  Nanos worked_{0};
  std::vector<std::unique_ptr<Socket>> sockets_;
  std::vector<pollfd> polls_;
  std::vector<int64_t> next_step_;
  std::string ends_;  // the last byte of each stream
  std::array<char, 256 * 1024> buffer_{};
};

// Sends one kind of request again and again on threads of its own.
class Attack {
 public:
  Attack(const HostileRequest& request, uint16_t port, int32_t attackers)
      : request_(request), port_(port) {
    for (int32_t i = 0; i < attackers; ++i) {
      threads_.emplace_back([this] { run(); });
    }
  }
  ~Attack() {
    stop();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  Attack(const Attack&) = delete;
  Attack& operator=(const Attack&) = delete;

  void stop() { stopping_ = true; }
  [[nodiscard]] bool ended() const { return ended_ == std::ssize(threads_); }
  // What the server answered, by status; after ended().
  [[nodiscard]] std::string answers() {
    std::string text;
    for (const auto& [status, count] : statuses_) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, status);
    }
    return text;
  }

 private:
  void run() {
    while (!stopping_) {
      const Socket socket(port_);
      if (!socket.connected()) {
        break;
      }
      const bool sent =
          socket.send(head_of(request_.path, request_.body.size(), request_.with_key)) &&
          socket.send(request_.body);
      count(request_.answer_is_read || !sent ? read_answer(socket) : leave_unread());
    }
    ++ended_;
  }
  static std::string read_answer(const Socket& socket) {
    std::string status;
    std::array<char, 64 * 1024> buffer{};
    for (ssize_t bytes = 1; bytes > 0;) {
      bytes = ::recv(socket.fd(), buffer.data(), buffer.size(), 0);
      constexpr size_t kStatusAt = 9;
      if (status.empty() && bytes > 12) {
        status.assign(buffer.data() + kStatusAt, 3);
      }
    }
    return status.empty() ? "cut" : status;
  }
  std::string leave_unread() const {
    while (!stopping_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return "unread";
  }
  void count(const std::string& status) {
    const std::scoped_lock lock(mutex_);
    ++statuses_[status];
  }

  const HostileRequest& request_;
  const uint16_t port_;
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> ended_{0};
  std::mutex mutex_;
  std::map<std::string, int> statuses_;  // guarded by mutex_
  std::vector<std::thread> threads_;
};

void print(std::string_view name, const Stall& stall, std::string_view answers) {
  fmt::print("  {:<42} {:>9.2f} {:>14.2f} {:>8}  {}\n", name, to_millis(stall.clock),
             to_millis(stall.worked), stall.tokens, answers);
  std::fflush(stdout);
}

int failed(std::string_view what) {
  log::error("{}", what);
  return 1;
}

}  // namespace

int bench_hostile(const BenchHostileOptions& options) {
  constexpr int kMappedBytes = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, kMappedBytes);  // as `tandem serve` does
  const auto tokenizer = hostile_tokenizer();
  if (!tokenizer.ok()) {
    return failed(tokenizer.error().message);
  }
  const text::ChatTemplate chat_template = text::ChatTemplate::plain({});
  NullFrontendOptions null_options;
  null_options.model.names = {"null"};
  null_options.model.max_model_len = 65'536;
  null_options.model.max_choices = 64;
  null_options.model.vocabulary = (*tokenizer)->vocab_size();
  null_options.script = {'x', 'y'};
  NullFrontend frontend(std::move(null_options));
  api::ServerOptions server_options;
  server_options.port = 0;
  server_options.api_keys = {{.key = std::string(kKey)}};
  const auto started = api::Server::start(
      server_options, frontend,
      {.tokenizer = **tokenizer, .chat_template = chat_template, .defaults = {}});
  if (!started.ok()) {
    return failed(started.error().message);
  }
  const api::Server& server = **started;
  frontend.start_paced(Nanos(static_cast<int64_t>(options.interval_ms * 1e6)));

  constexpr std::string_view kBroken = "a stream of the neighbour ended";
  Neighbour neighbour(server, frontend, options.streams);
  const SteadyClock clock;
  const auto for_seconds = [&](double seconds) {
    return [&clock, end = clock.now() + Nanos(static_cast<int64_t>(seconds * 1e9))] {
      return clock.now() > end;
    };
  };
  Stall settling;
  Stall alone;
  constexpr double kSettleSeconds = 0.5;
  if (!neighbour.read_until(for_seconds(kSettleSeconds), settling) ||
      !neighbour.read_until(for_seconds(options.seconds), alone)) {
    return failed(kBroken);
  }
  fmt::print(
      "front end, {} streams of a neighbour, a token each {} ms: the longest from the step to the "
      "client\n  {:<42} {:>9} {:>14} {:>8}  {}\n",
      options.streams, options.interval_ms, "beside", "ms", "I/O thread, ms", "tokens", "answers");
  print("nobody", alone, "");
  Nanos longest{0};
  for (const HostileRequest& request : hostile_requests()) {
    Stall stall;
    Attack attack(request, server.port(), options.attackers);
    bool good = neighbour.read_until(for_seconds(options.seconds), stall);
    attack.stop();
    const auto at_rest = [&] {
      return attack.ended() && server.metrics().generations == options.streams &&
             server.metrics().connections == options.streams &&
             server.metrics().request_bytes_held == 0;
    };
    good = good && neighbour.read_until(at_rest, stall);
    if (!good) {
      return failed(kBroken);
    }
    print(request.name, stall, attack.answers());
    longest = std::max(longest, stall.worked);
  }
  fmt::print("  longest stall by work of the I/O thread: {:.2f} ms (aim: 5 ms)\n",
             to_millis(longest));
  return 0;
}

}  // namespace tandem::bench
