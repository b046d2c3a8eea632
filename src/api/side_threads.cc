#include "api/side_threads.h"

#include <algorithm>

#include "base/check.h"

namespace tandem::api {

SideThreads::SideThreads(const SideThreadsOptions& options) : options_(options) {
  CHECK(options.threads >= 2, "{} side threads: one is for short jobs only", options.threads);
  for (int32_t i = 0; i < options.threads; ++i) {
    threads_.emplace_back([this, short_only = i == 0] { run(short_only); });
  }
}

SideThreads::~SideThreads() { stop(); }

void SideThreads::stop() {
  std::map<Place, Job> dropped;  // destroyed without the lock: jobs may own anything
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    for (Lane* lane : {&short_, &long_}) {
      dropped.merge(lane->jobs);
    }
    places_.clear();
    waiting_of_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) {
      thread.join();
    }
  }
}

std::optional<SideThreads::Ticket> SideThreads::post(const std::string& client, int64_t cost,
                                                     Bound bound, std::function<void()> job) {
  Ticket ticket = 0;
  {
    const std::scoped_lock lock(mutex_);
    const auto waiting = waiting_of_.find(client);
    const bool full =
        places_.size() >= options_.max_waiting ||
        (waiting != waiting_of_.end() && waiting->second >= options_.max_waiting_of_client);
    if (stopping_ || (full && bound == Bound::kApplies)) {
      return std::nullopt;
    }
    Lane& lane = cost <= options_.max_short_cost ? short_ : long_;
    int64_t& ready = lane.ready[client];
    const int64_t start = std::max(lane.now, ready);
    ready = start + std::max<int64_t>(cost, 1);
    ticket = next_ticket_++;
    lane.jobs.emplace(Place{start, ticket}, Job{client, std::move(job)});
    places_.emplace(ticket, std::pair{&lane, Place{start, ticket}});
    ++waiting_of_[client];
  }
  changed_.notify_all();  // not every thread takes every job
  return ticket;
}

std::function<void()> SideThreads::withdraw(Ticket ticket) {
  const std::scoped_lock lock(mutex_);
  const auto found = places_.find(ticket);
  if (found == places_.end()) {
    return nullptr;
  }
  const auto [lane, place] = found->second;
  const auto waiting = lane->jobs.find(place);
  Job job = std::move(waiting->second);
  lane->jobs.erase(waiting);
  forget(job, ticket);
  return std::move(job.work);
}

size_t SideThreads::waiting() const {
  const std::scoped_lock lock(mutex_);
  return places_.size();
}

void SideThreads::forget(const Job& job, Ticket ticket) {
  places_.erase(ticket);
  const auto waiting = waiting_of_.find(job.client);
  if (--waiting->second == 0) {
    waiting_of_.erase(waiting);
  }
}

// Threads for all jobs prefer long ones: short ones have a thread of their own.
// nullptr: there is no job for this thread.
SideThreads::Lane* SideThreads::take_next(bool short_only, Job& job) {
  Lane* lane = &short_;
  if (!short_only && !long_.jobs.empty()) {
    lane = &long_;
  }
  if (lane->jobs.empty()) {
    return nullptr;
  }
  ++lane->running;
  const auto next = lane->jobs.begin();
  lane->now = next->first.first;
  job = std::move(next->second);
  forget(job, next->first.second);
  lane->jobs.erase(next);
  // A client whose last job lies in the past starts at `now`, as one that is not known.
  constexpr size_t kManyClients = 1024;
  if (lane->ready.size() > kManyClients) {
    std::erase_if(lane->ready, [&](const auto& entry) { return entry.second <= lane->now; });
  }
  return lane;
}

void SideThreads::run(bool short_only) {
  std::unique_lock lock(mutex_);
  while (true) {
    Job job;
    Lane* lane = nullptr;
    changed_.wait(lock, [&] {
      lane = stopping_ ? nullptr : take_next(short_only, job);
      return stopping_ || lane != nullptr;
    });
    if (lane == nullptr) {
      return;  // stopping
    }
    lock.unlock();
    job.work();
    job = Job{};
    lock.lock();
    if (--lane->running == 0 && lane->jobs.empty()) {
      lane->ready.clear();  // idle: nobody has had more than another
    }
  }
}

}  // namespace tandem::api
