#include "api/io_loop.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <ctime>
#include <future>
#include <utility>

#include "api/connection.h"
#include "base/check.h"
#include "base/date.h"

namespace tandem::api {

namespace asio = boost::asio;

namespace {

// Another thread may set `max` to 0 meanwhile.
void raise_to(std::atomic<int64_t>& max, int64_t value) {
  int64_t before = max;
  while (before < value && !max.compare_exchange_weak(before, value)) {
  }
}

bool holds_prompt_logprobs(std::span<const TokenEvent> events) {
  return std::ranges::any_of(
      events, [](const TokenEvent& event) { return event.prompt_logprobs != nullptr; });
}

}  // namespace

// Engines hold it as long as they like; once the loop has gone, events go nowhere.
class IoLoop::Sink final : public TokenSink {
 public:
  explicit Sink(IoLoop& loop) : loop_(&loop) {}

  void deliver(std::vector<TokenEvent> events) override {
    const std::scoped_lock lock(mutex_);
    if (loop_ == nullptr) {
      return;
    }
    ++loop_->context_.metrics.pending_deliveries;
    // From here on the loop reads and writes nothing more before it waits for the lock in take().
    const bool is_first = !loop_->deliveries_wait_.exchange(true);
    waiting_.push_back({.events = std::move(events), .begin = {}});
    if (loop_->context_.options.measure_deliveries) {
      waiting_.back().begin = loop_->spent();
    }
    if (is_first) {
      asio::post(loop_->io_, [loop = loop_] { loop->run_deliveries(); });
    }
  }

  std::vector<Delivery> take() {
    const std::scoped_lock lock(mutex_);
    if (loop_ != nullptr) {
      loop_->deliveries_wait_ = false;
    }
    return std::exchange(waiting_, {});
  }

  void detach() {
    const std::scoped_lock lock(mutex_);
    loop_ = nullptr;
  }

 private:
  std::mutex mutex_;  // guards what follows
  IoLoop* loop_;
  std::vector<Delivery> waiting_;
};

IoLoop::IoLoop(ApiContext& context, SideThreads& compute, SideThreads* disk)
    : context_(context),
      compute_(compute),
      disk_(disk),
      work_(asio::make_work_guard(io_)),
      ticker_(io_),
      sink_(std::make_shared<Sink>(*this)),
      random_(std::random_device{}()) {
  constexpr size_t kScratchBytes = 64 * 1024;
  scratch_.resize(kScratchBytes);
}

IoLoop::~IoLoop() {
  close_connections();
  stop();
}

void IoLoop::start() {
  wait_tick();
  thread_ = std::thread([this] { io_.run(); });
}

void IoLoop::close_connections() {
  if (thread_.joinable()) {
    sink_->detach();
    auto closed = std::make_shared<std::promise<void>>();
    const std::future<void> done = closed->get_future();
    asio::post(io_, [this, closed = std::move(closed)] {
      close_all();
      closed->set_value();
    });
    done.wait();
  }
}

void IoLoop::stop() {
  if (thread_.joinable()) {
    asio::post(io_, [this] { work_.reset(); });
    thread_.join();
  }
}

void IoLoop::close_all() {
  closing_ = true;
  const auto connections = connections_;
  for (const auto& [raw, connection] : connections) {
    connection->close("server_stopped");
  }
  ticker_.cancel();
}

void IoLoop::post_socket(asio::ip::tcp::socket socket, ClientPlaces::Place place) {
  asio::post(io_, [this, place = std::move(place),
                   taken = std::make_shared<asio::ip::tcp::socket>(std::move(socket))] {
    if (closing_) {
      --context_.metrics.connections;  // accepted while the server ends
      return;
    }
    auto connection = std::make_shared<Connection>(std::move(*taken), place, *this, context_);
    connections_.emplace(connection.get(), connection);
    connection->start();
  });
}

Nanos IoLoop::thread_time() const {
  clockid_t clock{};
  timespec time{};
  auto& thread = const_cast<std::thread&>(thread_);  // native_handle() is not const
  if (!thread_.joinable() || pthread_getcpuclockid(thread.native_handle(), &clock) != 0 ||
      clock_gettime(clock, &time) != 0) {
    return Nanos{0};
  }
  return std::chrono::seconds(time.tv_sec) + Nanos(time.tv_nsec);
}

std::shared_ptr<TokenSink> IoLoop::sink() const { return sink_; }

uint64_t IoLoop::add_tag(Connection& connection, size_t prompt) {
  const uint64_t tag = next_tag_++;
  destinations_.emplace(tag, Destination{&connection, prompt});
  return tag;
}

void IoLoop::forget(Connection& connection) { connections_.erase(&connection); }

std::string IoLoop::new_id() { return fmt::format("{:016x}{:016x}", random_(), random_()); }

SideThreads& IoLoop::threads_of(Pool pool) {
  if (pool == Pool::kCompute) {
    return compute_;
  }
  CHECK(disk_ != nullptr, "a server without a data folder has no disk threads");
  return *disk_;
}

std::optional<IoLoop::Ticket> IoLoop::aside(const std::string& client, const JobTerms& terms,
                                            std::function<void()> work,
                                            std::function<void()> done) {
  const std::optional<SideThreads::Ticket> number =
      threads_of(terms.pool)
          .post(client, terms.cost, terms.bound,
                [this, work = std::move(work), done = std::move(done)]() mutable {
                  work();
                  work = nullptr;
                  asio::post(io_, [this, done = std::move(done)] {
                    run_deliveries();
                    done();
                  });
                });
  return number ? std::optional(Ticket{terms.pool, *number}) : std::nullopt;
}

void IoLoop::withdraw(const Ticket& ticket, std::shared_ptr<Connection> owner) {
  if (std::function<void()> job = threads_of(ticket.pool).withdraw(ticket.number)) {
    aside(
        "", {.pool = ticket.pool, .cost = 1, .bound = SideThreads::Bound::kIgnored},
        [job = std::move(job)]() mutable { job = nullptr; }, [owner = std::move(owner)] {});
  }
}

void IoLoop::dispose(std::string text) {
  constexpr size_t kLargeBytes = 1 << 20;
  if (text.capacity() > kLargeBytes) {
    dispose(std::shared_ptr<void>(std::make_shared<std::string>(std::move(text))));
  }
}

// The job is the only owner from here on: were there another on this thread, it might be the last.
void IoLoop::dispose(std::shared_ptr<void> owned, Pool pool) {
  threads_of(pool).post("", 1, SideThreads::Bound::kIgnored,
                        [last = std::move(owned)]() mutable { last.reset(); });
}

void IoLoop::dispose(std::vector<TokenEvent> events) {
  if (holds_prompt_logprobs(events)) {
    dispose(std::shared_ptr<void>(std::make_shared<std::vector<TokenEvent>>(std::move(events))));
  }
}

void IoLoop::run_deliveries() {
  if (!has_deliveries()) {
    return;
  }
  for (Delivery& delivery : sink_->take()) {
    dispatch(delivery);
    --context_.metrics.pending_deliveries;
  }
}

void IoLoop::dispatch(Delivery& delivery) {
  std::vector<TokenEvent>& events = delivery.events;
  std::vector<std::shared_ptr<Connection>> touched;
  for (size_t begin = 0; begin < events.size();) {
    size_t end = begin + 1;
    while (end < events.size() && events[end].tag == events[begin].tag) {
      ++end;
    }
    const auto found = destinations_.find(events[begin].tag);
    if (found != destinations_.end()) {
      const Destination to = found->second;
      if (to.connection->touch()) {
        touched.push_back(to.connection->shared_from_this());
      }
      to.connection->take(to.prompt, std::span(events).subspan(begin, end - begin));
    }
    begin = end;
  }
  for (const std::shared_ptr<Connection>& connection : touched) {
    connection->flush();
  }
  dispose(std::move(events));
  if (context_.options.measure_deliveries) {
    const DeliveryCost end = spent();
    raise_to(longest_delivery_, (end.thread_time - delivery.begin.thread_time).count());
    raise_to(most_read_, end.bytes_read - delivery.begin.bytes_read);
  }
}

const std::string& IoLoop::date() {
  if (const int64_t seconds = context_.options.unix_seconds(); seconds != date_seconds_) {
    date_seconds_ = seconds;
    date_ = http_date(seconds);
  }
  return date_;
}

DeliveryCost IoLoop::spent() const {
  return {.thread_time = thread_time(), .bytes_read = bytes_read_};
}

void IoLoop::wait_tick() {
  ticker_.expires_after(context_.options.tick);
  ticker_.async_wait([this](const boost::system::error_code& error) {
    if (error || closing_) {
      return;  // closing_: this tick was due already when close_all cancelled the timer
    }
    const auto connections = connections_;
    const Nanos time = now();
    for (const auto& [raw, connection] : connections) {
      connection->tick(time);
    }
    wait_tick();
  });
}

}  // namespace tandem::api
