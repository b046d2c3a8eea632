// The open-loop load generator: sends each request of a Load at its time, whatever the server does,
// and records what comes back. Threads: run() uses the calling thread alone.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "loadgen/client.h"
#include "loadgen/dispatcher.h"
#include "loadgen/load.h"
#include "loadgen/prompt_text.h"
#include "loadgen/record.h"
#include "loadgen/request_body.h"

namespace tandem::loadgen {

// How a run stands.
struct LiveCounts {
  Nanos elapsed{0};
  int64_t planned = 0;
  int64_t sent = 0;
  int64_t under_way = 0;
  int64_t done = 0;
  int64_t failed = 0;
  int64_t chunks = 0;  // with a token, of all requests
};

struct RunResult {
  std::vector<RequestRecord> records;  // as the load's requests
  Nanos duration{0};                   // until the last answer ended
  Nanos cpu_time{0};                   // of the generator's thread
  int64_t connections = 0;             // opened
  bool interrupted = false;            // by SIGINT or SIGTERM
};

class Generator {
 public:
  // All must outlive the generator. `client` has resolved its server and runs on `io`.
  Generator(boost::asio::io_context& io, Client& client, const Clock& clock,
            const EndpointOptions& endpoint, const Load& load, const PromptUnits& units);
  ~Generator();

  // `on_progress` is called a few times a second. `max_concurrency` 0: no bound.
  RunResult run(int64_t max_concurrency, std::function<void(const LiveCounts&)> on_progress);

 private:
  class Exchange;
  void pump();
  void prepare_ahead();
  void tick();
  void ended(Exchange& exchange, Nanos now);
  [[nodiscard]] Nanos now() const { return clock_.now() - began_; }
  [[nodiscard]] std::string request_bytes(int64_t index) const;
  [[nodiscard]] bool finished() const;

  boost::asio::io_context& io_;
  Client& client_;
  const Clock& clock_;
  const EndpointOptions& endpoint_;
  const Load& load_;
  const PromptUnits& units_;

  boost::asio::steady_timer timer_;   // of the next request
  boost::asio::steady_timer ticker_;  // of progress and silence
  boost::asio::signal_set signals_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::deque<std::string> prepared_;  // bytes of the next requests, so that sending is prompt
  size_t prepared_bytes_ = 0;
  bool preparing_ = false;
  std::vector<std::unique_ptr<Exchange>> exchanges_;  // under way, by the place in the list
  std::function<void(const LiveCounts&)> on_progress_;
  LiveCounts counts_;
  RunResult result_;
  Nanos began_{0};
};

}  // namespace tandem::loadgen
