#include "loadgen/generator.h"

#include <boost/asio/post.hpp>
#include <csignal>
#include <utility>

#include "base/check.h"
#include "base/thread_time.h"
#include "loadgen/sse_parser.h"

namespace tandem::loadgen {

namespace asio = boost::asio;

namespace {

constexpr size_t kMostPrepared = 64;
constexpr size_t kMostPreparedBytes = size_t{32} << 20;
constexpr auto kTick = std::chrono::milliseconds(200);

}  // namespace

// One request under way: reads its stream into its record.
class Generator::Exchange final : public AnswerListener {
 public:
  Exchange(Generator& generator, int64_t index) : generator_(generator), index_(index) {}

  RequestRecord& record() { return generator_.result_.records[static_cast<size_t>(index_)]; }
  size_t place = 0;  // in exchanges_

  void on_header(int status, std::string_view content_type) override {
    record().status = status;
    is_stream_ = status == 200 && content_type.starts_with("text/event-stream");
  }

  bool on_body(std::string_view bytes, Nanos now) override {
    if (!is_stream_) {
      constexpr size_t kMostBytes = 64 * 1024;
      body_ += bytes.substr(0, kMostBytes - std::min(kMostBytes, body_.size()));
      return true;
    }
    const Status status = events_.feed(bytes, [&](std::string_view data) {
      if (trouble_.empty()) {
        take(data, now - generator_.began_);
      }
    });
    if (!status.ok()) {
      trouble_ = status.error().message;
    }
    return trouble_.empty();
  }

  void on_end(std::string_view failure, std::string_view message, Nanos now) override {
    RequestRecord& mine = record();
    mine.ended_at = now - generator_.began_;
    mine.count_closing_chunk();
    if (failure == "interrupted") {
      mine.outcome = Outcome::kInterrupted;
    } else if (!failure.empty()) {
      fail(failure, trouble_.empty() ? message : std::string_view(trouble_));
    } else if (mine.status != 200) {
      fail(fmt::format("http_{}", mine.status), error_message(body_));
    } else if (!is_stream_) {
      fail("no_stream", "the answer is not a text/event-stream");
    } else if (!stream_error_.empty()) {
      fail("stream_error", stream_error_);
    } else if (!ended_ && mine.finish_reason.empty()) {
      fail("cut", "the stream ended without finish_reason and [DONE]");
    } else if (mine.chunk_times.empty()) {
      fail("empty", "the stream brought no token");
    } else {
      mine.outcome = Outcome::kDone;
    }
    generator_.ended(*this, mine.ended_at);
  }

 private:
  void take(std::string_view data, Nanos at) {
    Result<StreamChunk> chunk = read_chunk(data);
    if (!chunk.ok()) {
      trouble_ = chunk.error().message;
      return;
    }
    RequestRecord& mine = record();
    ended_ = ended_ || chunk->is_end;
    constexpr size_t kMostKeptBytes = 64 * 1024;
    if (mine.task != nullptr && mine.answer.size() < kMostKeptBytes) {
      mine.answer += chunk->text;
    }
    if (chunk->has_token) {
      mine.chunk_times.push_back(at);
      ++generator_.counts_.chunks;
    }
    if (!chunk->finish_reason.empty()) {
      mine.finish_reason = chunk->finish_reason;
      mine.finish_at = at;
      mine.service_tier = chunk->service_tier;
    }
    if (!chunk->error.empty()) {
      stream_error_ = chunk->error;
    }
    if (chunk->usage) {
      mine.usage = chunk->usage;
    }
  }

  void fail(std::string_view reason, std::string_view message) {
    record().outcome = Outcome::kFailed;
    record().reason = reason;
    record().message = message;
  }

  Generator& generator_;
  int64_t index_;
  SseParser events_;
  std::string body_;  // of an answer that is not a stream
  std::string trouble_;
  std::string stream_error_;
  bool is_stream_ = false;
  bool ended_ = false;
};

Generator::Generator(asio::io_context& io, Client& client, const Clock& clock,
                     const EndpointOptions& endpoint, const Load& load, const PromptUnits& units)
    : io_(io),
      client_(client),
      clock_(clock),
      endpoint_(endpoint),
      load_(load),
      units_(units),
      timer_(io),
      ticker_(io),
      signals_(io) {}

Generator::~Generator() = default;

RunResult Generator::run(int64_t max_concurrency,
                         std::function<void(const LiveCounts&)> on_progress) {
  on_progress_ = std::move(on_progress);
  std::vector<Nanos> planned;
  for (const LoadRequest& request : load_.requests) {
    RequestRecord record;
    record.group = request.group;
    record.model = request.model;
    record.planned_input_tokens = request.plan.input_tokens;
    record.planned_output_tokens = request.plan.output_tokens;
    record.planned_at = request.plan.at;
    record.task = request.task;
    result_.records.push_back(std::move(record));
    planned.push_back(request.plan.at);
  }
  counts_.planned = std::ssize(planned);
  dispatcher_ = std::make_unique<Dispatcher>(std::move(planned), max_concurrency);
  while (prepared_.size() < std::min(kMostPrepared, load_.requests.size()) &&
         prepared_bytes_ < kMostPreparedBytes) {
    prepared_.push_back(request_bytes(std::ssize(prepared_)));
    prepared_bytes_ += prepared_.back().size();
  }
  boost::system::error_code ignored;
  signals_.add(SIGINT, ignored);
  signals_.add(SIGTERM, ignored);
  signals_.async_wait([this](const boost::system::error_code& error, int) {
    if (!error) {
      result_.interrupted = true;
      timer_.cancel();
      client_.interrupt();
      if (finished()) {
        io_.stop();
      }
    }
  });

  const Nanos cpu_before = thread_time();
  const int64_t opened_before = client_.connections_opened();
  began_ = clock_.now();
  tick();
  io_.restart();
  pump();
  if (!finished()) {
    io_.run();
  }
  result_.duration = now();
  result_.cpu_time = thread_time() - cpu_before;
  result_.connections = client_.connections_opened() - opened_before;
  timer_.cancel();
  ticker_.cancel();
  signals_.cancel();
  io_.restart();
  io_.poll();  // what was posted to this generator is done with before it goes
  return std::move(result_);
}

bool Generator::finished() const {
  return dispatcher_->under_way() == 0 && (dispatcher_->all_sent() || result_.interrupted);
}

std::string Generator::request_bytes(int64_t index) const {
  return generation_request(endpoint_, load_, load_.requests[static_cast<size_t>(index)], units_);
}

// Sends what is due and sleeps until the next is.
void Generator::pump() {
  while (!result_.interrupted) {
    const std::optional<Dispatcher::Due> due = dispatcher_->take(now());
    if (!due) {
      break;
    }
    std::string bytes;
    if (prepared_.empty()) {
      bytes = request_bytes(due->index);
    } else {
      bytes = std::move(prepared_.front());
      prepared_.pop_front();
      prepared_bytes_ -= bytes.size();
    }
    auto exchange = std::make_unique<Exchange>(*this, due->index);
    exchange->place = exchanges_.size();
    exchanges_.push_back(std::move(exchange));
    Exchange& started = *exchanges_.back();
    started.record().due_at = due->at;
    started.record().sent_at = now();
    client_.send(std::move(bytes), started);
  }
  if (result_.interrupted) {
    return;
  }
  if (const std::optional<Nanos> wake = dispatcher_->wake_at()) {
    timer_.expires_at(asio::steady_timer::time_point(began_ + *wake));
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) {
        pump();
      }
    });
  }
  prepare_ahead();
}

// One request a turn, so that answers are read between.
void Generator::prepare_ahead() {
  if (preparing_) {
    return;
  }
  preparing_ = true;
  asio::post(io_, [this] {
    preparing_ = false;
    const int64_t next = dispatcher_->sent() + std::ssize(prepared_);
    if (next < std::ssize(load_.requests) && prepared_.size() < kMostPrepared &&
        prepared_bytes_ < kMostPreparedBytes) {
      prepared_.push_back(request_bytes(next));
      prepared_bytes_ += prepared_.back().size();
      prepare_ahead();
    }
  });
}

void Generator::ended(Exchange& exchange, Nanos now) {
  const Outcome outcome = exchange.record().outcome;
  counts_.done += outcome == Outcome::kDone ? 1 : 0;
  counts_.failed += outcome == Outcome::kFailed ? 1 : 0;
  dispatcher_->ended(now);
  // The last exchange takes this one's place; this one is destroyed when its caller has returned.
  const size_t place = exchange.place;
  std::swap(exchanges_[place], exchanges_.back());
  exchanges_[place]->place = place;
  asio::post(io_, [gone = std::move(exchanges_.back())] {});
  exchanges_.pop_back();
  if (finished()) {
    io_.stop();
    return;
  }
  // Not from here: a refused connection would start the next request inside this one's end.
  asio::post(io_, [this] { pump(); });
}

void Generator::tick() {
  client_.check_silence();
  counts_.elapsed = now();
  counts_.sent = dispatcher_->sent();
  counts_.under_way = dispatcher_->under_way();
  on_progress_(counts_);
  ticker_.expires_after(kTick);
  ticker_.async_wait([this](const boost::system::error_code& error) {
    if (!error) {
      tick();
    }
  });
}

}  // namespace tandem::loadgen
