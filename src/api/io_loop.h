// One I/O thread: its connections, its timer, and the sink through which engines wake it. A step's
// events are given to their connections by tag, and each touched connection then writes once. Steps
// go before everything else that waits: before each piece of reading and writing the loop looks for
// them, so a token waits for one such piece, however many connections are busy. Threads: start(),
// stop(), post_socket(), take_longest_delivery() and the sink's deliver() may be called from any
// thread; all else runs on the loop's.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "api/api_context.h"
#include "api/client_places.h"
#include "api/delivery_cost.h"
#include "api/side_threads.h"
#include "base/clock.h"
#include "request/request.h"

namespace tandem::api {

class Connection;

class IoLoop {
 public:
  // Where work runs that would hold up the loop. What waits for a disk has threads of its own, so
  // that a slow disk delays neither parsing nor the freeing of memory.
  enum class Pool : uint8_t { kCompute, kDisk };
  // A job that was handed over.
  struct Ticket {
    Pool pool = Pool::kCompute;
    SideThreads::Ticket number = 0;
  };
  // How a job is handed over: see SideThreads::post.
  struct JobTerms {
    Pool pool = Pool::kCompute;
    int64_t cost = 0;
    SideThreads::Bound bound = SideThreads::Bound::kApplies;
  };

  // `disk` may be null where nothing is posted to Pool::kDisk.
  IoLoop(ApiContext& context, SideThreads& compute, SideThreads* disk);
  ~IoLoop();

  void start();
  // The end, in two halves, the pools to be stopped between them: closes every connection and
  // cancels their generations, and returns when that is done; runs what the pools still handed
  // over, and ends the thread.
  void close_connections();
  void stop();
  // Starts serving an accepted socket, which must belong to io().
  void post_socket(boost::asio::ip::tcp::socket socket, ClientPlaces::Place place);
  [[nodiscard]] boost::asio::io_context& io() { return io_; }
  [[nodiscard]] Nanos thread_time() const;
  // See Server::take_longest_delivery().
  [[nodiscard]] DeliveryCost take_longest_delivery() {
    return {.thread_time = Nanos(longest_delivery_.exchange(0)),
            .bytes_read = most_read_.exchange(0)};
  }

  // For connections.
  // Steps wait to be dispatched.
  [[nodiscard]] bool has_deliveries() const { return deliveries_wait_; }
  // Dispatches the steps that wait. May write to any connection, and close it.
  void run_deliveries();
  [[nodiscard]] std::shared_ptr<TokenSink> sink() const;
  [[nodiscard]] uint64_t add_tag(Connection& connection, size_t prompt);
  void remove_tag(uint64_t tag) { destinations_.erase(tag); }
  void forget(Connection& connection);
  [[nodiscard]] std::string new_id();
  [[nodiscard]] Nanos now() const { return clock_.now(); }
  // The time for the header Date. It is formatted at most once a second.
  [[nodiscard]] const std::string& date();
  [[nodiscard]] std::span<char> scratch() { return scratch_; }
  void count_read(size_t bytes) { bytes_read_ += static_cast<int64_t>(bytes); }
  // Runs `work` on a thread of the pool and then `done` on the loop. What `work` owns is destroyed
  // on that thread, unless `done` shares it.
  std::optional<Ticket> aside(const std::string& client, const JobTerms& terms,
                              std::function<void()> work, std::function<void()> done);
  // If the job still waits, neither its `work` nor its `done` will run. What they own is destroyed
  // on a thread of the job's pool, except `owner`, which the job may own: its last reference is
  // dropped on the loop.
  void withdraw(const Ticket& ticket, std::shared_ptr<Connection> owner);
  // Frees `text`. A large one is freed on a side thread, because returning pages takes time.
  void dispose(std::string text);
  // Drops this reference on a thread of the pool, so that a last one is freed there.
  void dispose(std::shared_ptr<void> owned, Pool pool = Pool::kCompute);
  // Frees the events. On a side thread if log-probabilities of a prompt are among them.
  void dispose(std::vector<TokenEvent> events);

 private:
  class Sink;
  struct Delivery {
    std::vector<TokenEvent> events;
    DeliveryCost begin;  // the loop's when it was handed over; if deliveries are measured
  };
  struct Destination {
    Connection* connection;
    size_t prompt;
  };
  void dispatch(Delivery& delivery);
  [[nodiscard]] DeliveryCost spent() const;
  void wait_tick();
  void close_all();
  SideThreads& threads_of(Pool pool);

  ApiContext& context_;
  SideThreads& compute_;
  SideThreads* const disk_;
  boost::asio::io_context io_{1};
  std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work_;
  boost::asio::steady_timer ticker_;
  std::shared_ptr<Sink> sink_;
  std::atomic<bool> deliveries_wait_{false};
  std::atomic<int64_t> bytes_read_{0};
  std::atomic<int64_t> longest_delivery_{0};  // thread time, if deliveries are measured
  std::atomic<int64_t> most_read_{0};         // likewise
  SteadyClock clock_;
  int64_t date_seconds_ = -1;  // Unix time that date_ shows
  std::string date_;           // as the header Date has it
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections_;
  std::unordered_map<uint64_t, Destination> destinations_;
  uint64_t next_tag_ = 1;
  std::mt19937_64 random_;
  std::vector<char> scratch_;  // what was just read; empty between handlers
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace tandem::api
