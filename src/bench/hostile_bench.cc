#include "bench/hostile_bench.h"

#include <fmt/format.h>
#include <malloc.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/server.h"
#include "base/clock.h"
#include "base/log.h"
#include "bench/attack_process.h"
#include "bench/client_socket.h"
#include "bench/hostile_requests.h"
#include "bench/measuring.h"
#include "bench/null_frontend.h"

namespace tandem::bench {

namespace {

constexpr int32_t kEndless = 60'000;

struct Stall {
  Nanos clock{0};
  Nanos worked{0};  // I/O thread's processor time until the step was written
  int64_t tokens = 0;
};

// The neighbour's streams, read on one thread. A chunk belongs to the step whose turn it is in its
// stream: the first is of the newest step, and each step after that brings one.
class Neighbour {
 public:
  Neighbour(api::Server& server, const NullFrontend& frontend, int32_t streams)
      : server_(server), frontend_(frontend) {
    const HostileRequest harmless{
        .name = "",
        .body = fmt::format(R"({{"prompt":"hello","stream":true,"max_tokens":{}}})", kEndless)};
    for (int32_t i = 0; i < streams; ++i) {
      sockets_.push_back(std::make_unique<ClientSocket>(server.port()));
      static_cast<void>(sockets_.back()->send(head_of(harmless) + harmless.body));
      polls_.push_back({.fd = sockets_.back()->fd(), .events = POLLIN, .revents = 0});
    }
    next_step_.resize(polls_.size(), -1);
    ends_.resize(polls_.size(), '\0');
  }

  // Reads until `done`; false when a stream ended or nothing comes any more. A call takes up where
  // the last one ended, so nothing else should take time between them.
  template <class Condition>
  bool read_until(Condition done, Stall& stall) {
    constexpr int kPatienceMillis = 120'000;
    while (!done()) {
      if (::poll(polls_.data(), polls_.size(), kPatienceMillis) <= 0) {
        return false;
      }
      for (size_t i = 0; i < polls_.size(); ++i) {
        if (polls_[i].revents != 0 && !read(i, stall)) {
          return false;
        }
      }
    }
    stall.worked = std::max(stall.worked, server_.take_longest_delivery().thread_time);
    return true;
  }

 private:
  bool read(size_t i, Stall& stall) {
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
        stall.clock = std::max(stall.clock, now - frontend_.delivered_at(step));
        ++stall.tokens;
        ++step;
      }
      before = byte;
    }
    return true;
  }

  api::Server& server_;
  const NullFrontend& frontend_;
  const SteadyClock clock_;
  std::vector<std::unique_ptr<ClientSocket>> sockets_;
  std::vector<pollfd> polls_;
  std::vector<int64_t> next_step_;
  std::string ends_;  // the last byte of each stream
  std::array<char, 256 * 1024> buffer_{};
};

void print(std::string_view name, const Stall& stall, std::string_view answers) {
  fmt::print("  {:<42} {:>9.2f} {:>14.2f} {:>8}  {}\n", name, to_millis(stall.clock),
             to_millis(stall.worked), stall.tokens, answers);
  std::fflush(stdout);
}

// Nothing is left of the attackers' requests.
bool only_neighbour(const api::HttpMetrics& metrics, int32_t streams) {
  return metrics.generations == streams && metrics.connections == streams &&
         metrics.request_bytes_held == 0;
}

}  // namespace

int bench_hostile(const BenchHostileOptions& options) {
  constexpr int kMappedBytes = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, kMappedBytes);  // as `tandem serve` does
  AttackProcess attackers(hostile_requests(), options.attackers);
  if (!attackers.good()) {
    return failed("cannot start a process for the attackers");
  }
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
  server_options.measure_deliveries = true;
  server_options.api_keys = {{.key = std::string(kHostileKey)}};
  const auto started = api::Server::start(server_options, {{.frontend = frontend,
                                                            .tokenizer = **tokenizer,
                                                            .chat_template = chat_template,
                                                            .defaults = {}}});
  if (!started.ok()) {
    return failed(started.error().message);
  }
  api::Server& server = **started;
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
  for (size_t request = 0; request < attackers.names().size(); ++request) {
    Stall stall;
    attackers.start(request, server.port());
    const bool good = neighbour.read_until(for_seconds(options.seconds), stall);
    attackers.stop();
    Result<std::optional<std::string>> answers = std::optional<std::string>();
    const auto at_rest = [&] {
      if (answers.ok() && !answers->has_value()) {
        answers = attackers.answers();
      }
      return !answers.ok() ||
             (answers->has_value() && only_neighbour(server.metrics(), options.streams));
    };
    if (!good || !neighbour.read_until(at_rest, stall)) {
      return failed(kBroken);
    }
    if (!answers.ok()) {
      return failed(answers.error().message);
    }
    print(attackers.names()[request], stall, **answers);
    longest = std::max(longest, stall.worked);
  }
  fmt::print("  longest stall by work of the I/O thread: {:.2f} ms (aim: 5 ms)\n",
             to_millis(longest));
  return 0;
}

}  // namespace tandem::bench
