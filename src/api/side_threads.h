// Runs work that would hold up an I/O thread: parsing and tokenizing long bodies, writing long
// answers. Clients share the threads by the cost of their jobs (start-time fair queueing): a client
// with one job does not wait behind all jobs of another. The first thread runs short jobs only, so
// that they never wait for long ones. The number of waiting jobs is bounded. Threads: any.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tandem::api {

struct SideThreadsOptions {
  int32_t threads = 3;               // at least 2
  int64_t max_short_cost = 1 << 18;  // jobs above it are long
  size_t max_waiting = 1024;
  size_t max_waiting_of_client = 512;
};

class SideThreads {
 public:
  using Ticket = uint64_t;
  enum class Bound { kApplies, kIgnored };

  explicit SideThreads(const SideThreadsOptions& options);
  ~SideThreads();  // as stop()
  SideThreads(const SideThreads&) = delete;
  SideThreads& operator=(const SideThreads&) = delete;

  // Runs `job` on one of the threads. `cost` is in proportion to its time: bytes to parse.
  // nullopt: as many jobs wait as may, or stop() was called; the job is dropped.
  std::optional<Ticket> post(const std::string& client, int64_t cost, Bound bound,
                             std::function<void()> job);
  // Takes the job back if it is still waiting: it will not run. Empty: it has begun or ended.
  [[nodiscard]] std::function<void()> withdraw(Ticket ticket);
  // Drops what waits, lets the running jobs end, and joins the threads.
  void stop();

  [[nodiscard]] size_t waiting() const;

 private:
  // Where a job stands: jobs of a lane run in the order of (virtual start, ticket).
  using Place = std::pair<int64_t, Ticket>;
  struct Job {
    std::string client;
    std::function<void()> work;
  };
  struct Lane {
    std::map<Place, Job> jobs;
    int32_t running = 0;
    int64_t now = 0;                                 // virtual start of the job that was taken last
    std::unordered_map<std::string, int64_t> ready;  // virtual end of each client's last job
  };

  void run(bool short_only);
  Lane* take_next(bool short_only, Job& job);
  void forget(const Job& job, Ticket ticket);

  const SideThreadsOptions options_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  Lane short_;
  Lane long_;
  std::unordered_map<Ticket, std::pair<Lane*, Place>> places_;
  std::unordered_map<std::string, size_t> waiting_of_;
  Ticket next_ticket_ = 1;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tandem::api
