#include "bench/crowd_bench.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "api/server.h"
#include "base/log.h"
#include "bench/measuring.h"
#include "bench/null_frontend.h"

namespace tandem::bench {

namespace {

int connect_to(uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (socket >= 0 &&
      ::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    ::close(socket);
    return -1;
  }
  return socket;
}

std::string request_text(int32_t tokens) {
  const std::string body = fmt::format(
      R"({{"messages":[{{"role":"user","content":"hello"}}],"stream":true,"max_tokens":{}}})",
      tokens);
  return fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Length: {}\r\n\r\n{}",
      body.size(), body);
}

class Sockets {
 public:
  Sockets() = default;
  ~Sockets() {
    for (const int socket : sockets_) {
      ::close(socket);
    }
  }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;
  // False when one of them cannot be had.
  bool open(int32_t count, uint16_t port) {
    for (int32_t i = 0; i < count; ++i) {
      const int socket = connect_to(port);
      if (socket < 0) {
        return false;
      }
      sockets_.push_back(socket);
    }
    return true;
  }
  [[nodiscard]] const std::vector<int>& all() const { return sockets_; }

 private:
  std::vector<int> sockets_;
};

double percentile(std::vector<double>& values, double share) {
  if (values.empty()) {
    return 0;
  }
  const auto at =
      values.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

struct Phase {
  std::vector<double> latencies_ms;
  std::vector<double> reader_ms;  // what of each was this program's: others were read first
  double seconds = 0;
  double io_seconds = 0;
  int64_t refused = 0;

  [[nodiscard]] double tokens_per_second() const {
    return static_cast<double>(latencies_ms.size()) / seconds;
  }
};

// The streaming clients, on one thread. A chunk belongs to the step whose turn it is in its stream:
// the first chunk is of the newest step, and each step after that brings one.
class Streams {
 public:
  Streams(const Sockets& sockets, const NullFrontend& frontend) : frontend_(frontend) {
    for (const int socket : sockets.all()) {
      polls_.push_back({.fd = socket, .events = POLLIN, .revents = 0});
    }
    next_step_.resize(polls_.size(), -1);
  }

  // Reads for `seconds`; false when a connection failed.
  bool run(double seconds, Phase& phase) {
    const Nanos began = clock_.now();
    const Nanos end = began + Nanos(static_cast<int64_t>(seconds * 1e9));
    constexpr int kPatienceMillis = 10000;
    while (clock_.now() < end) {
      if (::poll(polls_.data(), polls_.size(), kPatienceMillis) <= 0) {
        return false;
      }
      polled_ = clock_.now();
      for (size_t i = 0; i < polls_.size(); ++i) {
        if (polls_[i].revents != 0 && !read(i, phase)) {
          return false;
        }
      }
    }
    phase.seconds = to_seconds(clock_.now() - began);
    return true;
  }

 private:
  bool read(size_t i, Phase& phase) {
    constexpr std::string_view kToken = "\"content\":\" ";
    const ssize_t bytes = ::recv(polls_[i].fd, buffer_.data(), buffer_.size(), 0);
    if (bytes <= 0) {
      return false;
    }
    const Nanos now = clock_.now();
    const std::string_view text(buffer_.data(), static_cast<size_t>(bytes));
    for (size_t at = text.find(kToken); at != std::string_view::npos;
         at = text.find(kToken, at + 1)) {
      int64_t& step = next_step_[i];
      if (step < 0) {
        step = frontend_.steps() - 1;
      }
      phase.latencies_ms.push_back(to_millis(now - frontend_.delivered_at(step)));
      phase.reader_ms.push_back(to_millis(now - polled_));
      ++step;
    }
    return true;
  }

  const NullFrontend& frontend_;
  const SteadyClock clock_;
  Nanos polled_{0};  // when what is being read was seen to be there
  std::vector<pollfd> polls_;
  std::vector<int64_t> next_step_;
  std::array<char, 64 * 1024> buffer_{};
};

// Clients that ask, are refused, and ask again, on a thread of their own.
class Flood {
 public:
  Flood(const Sockets& sockets, std::string request)
      : sockets_(sockets.all()), request_(std::move(request)), thread_([this] { run(); }) {}
  // Returns the number of refusals.
  int64_t stop() {
    stopping_ = true;
    thread_.join();
    return refused_;
  }

 private:
  void run() {
    std::vector<pollfd> polls;
    for (const int socket : sockets_) {
      polls.push_back({.fd = socket, .events = POLLIN, .revents = 0});
      ask(socket);
    }
    std::array<char, 16 * 1024> buffer{};
    constexpr int kPatienceMillis = 100;
    while (!stopping_) {
      ::poll(polls.data(), polls.size(), kPatienceMillis);
      for (const pollfd& poll : polls) {
        if (poll.revents == 0) {
          continue;
        }
        const ssize_t bytes = ::recv(poll.fd, buffer.data(), buffer.size(), 0);
        if (bytes <= 0) {
          stopping_ = true;
        } else if (std::string_view(buffer.data(), static_cast<size_t>(bytes))
                       .starts_with("HTTP/1.1 429")) {
          ++refused_;
          ask(poll.fd);
        }
      }
    }
  }
  void ask(int socket) const { ::send(socket, request_.data(), request_.size(), MSG_NOSIGNAL); }

  const std::vector<int> sockets_;
  const std::string request_;
  std::atomic<bool> stopping_{false};
  int64_t refused_ = 0;
  std::thread thread_;
};

// Two descriptors a connection: both ends are in this process.
bool allow_descriptors(int32_t connections) {
  constexpr rlim_t kOwnFiles = 64;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur >= static_cast<rlim_t>(connections) * 2 + kOwnFiles;
}

void print(std::string_view name, Phase& phase) {
  fmt::print(
      "  {:<28} P50 {:.2f} ms, P99 {:.2f} ms (reading the others first: {:.2f} ms), largest {:.2f} "
      "ms; {:.0f} tokens/s; I/O thread {:.0f} % busy",
      name, percentile(phase.latencies_ms, 0.5), percentile(phase.latencies_ms, 0.99),
      percentile(phase.reader_ms, 0.99), percentile(phase.latencies_ms, 1),
      phase.tokens_per_second(), phase.io_seconds / phase.seconds * 100);
  if (phase.refused > 0) {
    fmt::print("; {:.0f} refusals/s", static_cast<double>(phase.refused) / phase.seconds);
  }
  fmt::print("\n");
}

}  // namespace

int bench_crowd(const BenchCrowdOptions& options, const ServedModel& model,
                const text::Tokenizer& tokenizer, const text::ChatTemplate& chat_template) {
  const int32_t all = options.streams + options.idle + options.flooders;
  if (!allow_descriptors(all)) {
    return failed("too few open files are allowed for so many connections; see ulimit -Hn");
  }
  constexpr int32_t kEndless = 1'000'000;
  ServedModel served = model;
  served.max_model_len = kEndless + 1024;
  NullFrontendOptions null_options{.model = std::move(served), .max_sequences = options.streams};
  for (TokenId id = 0; id < model.vocabulary; id += 7) {
    null_options.script.push_back(id);
  }
  NullFrontend frontend(std::move(null_options));
  api::ServerOptions server_options;
  server_options.port = 0;
  server_options.limits.max_connections = all * 2;
  const auto started = api::Server::start(server_options, {{.frontend = frontend,
                                                            .tokenizer = tokenizer,
                                                            .chat_template = chat_template,
                                                            .defaults = {}}});
  if (!started.ok()) {
    return failed(started.error().message);
  }
  api::Server& server = **started;
  frontend.start_paced(Nanos(static_cast<int64_t>(options.interval_ms * 1e6)));

  Sockets streaming;
  Sockets idle;
  Sockets flooding;
  if (!streaming.open(options.streams, server.port())) {
    return failed("a connection to the server failed");
  }
  const std::string request = request_text(kEndless);
  for (const int socket : streaming.all()) {
    ::send(socket, request.data(), request.size(), MSG_NOSIGNAL);
  }
  Streams streams(streaming, frontend);
  const auto measure = [&](Phase& phase) {
    constexpr double kSettleSeconds = 0.3;
    Phase unmeasured;
    if (!streams.run(kSettleSeconds, unmeasured)) {
      return false;
    }
    const Nanos worked = server.io_thread_time();
    const bool good = streams.run(options.seconds, phase);
    phase.io_seconds = to_seconds(server.io_thread_time() - worked);
    return good;
  };
  Phase alone;
  Phase crowded;
  Phase flooded;
  if (!measure(alone) || !idle.open(options.idle, server.port()) || !measure(crowded) ||
      !flooding.open(options.flooders, server.port())) {
    return failed("a connection to the server failed");
  }
  Flood flood(flooding, request);
  const bool good = measure(flooded);
  flooded.refused = flood.stop();
  if (!good) {
    return failed("a connection to the server failed");
  }
  fmt::print("front end, {} streams, a token each {} ms: from the step to the client\n",
             options.streams, options.interval_ms);
  print("alone", alone);
  print(fmt::format("among {} idle", options.idle), crowded);
  print(fmt::format("and {} that are refused", options.flooders), flooded);
  fmt::print(
      "  P99 among idle ones / alone: {:.2f}; tokens/s among refused ones / before: {:.3f}\n",
      percentile(crowded.latencies_ms, 0.99) / percentile(alone.latencies_ms, 0.99),
      flooded.tokens_per_second() / crowded.tokens_per_second());
  return 0;
}

}  // namespace tandem::bench
