#include "device/cpu/worker_pool.h"

#include <algorithm>
#include <limits>
#include <system_error>

#include "base/affinity.h"
#include "base/check.h"
#include "device/cpu/futex.h"
#include "device/cpu/spin.h"

namespace tandem::device {

Result<std::unique_ptr<WorkerPool>> WorkerPool::create(const WorkerPoolOptions& options) {
  CHECK(options.threads >= 1, "{} threads", options.threads);
  std::unique_ptr<WorkerPool> pool(new WorkerPool(options.threads, options.spin));
  RETURN_IF_ERROR(pool->start(options.cpus));
  return pool;
}

Status WorkerPool::start(const std::vector<int32_t>& cpus) {
  try {
    workers_.reserve(static_cast<size_t>(threads_));
    for (int32_t i = 1; i < threads_; ++i) {
      const int32_t cpu = cpus.empty() ? -1 : cpus[static_cast<size_t>(i) % cpus.size()];
      workers_.emplace_back([this, cpu] {
        if (cpu >= 0) {
          pin_this_thread(cpu);
        }
        work();
      });
    }
  } catch (const std::system_error& error) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("cannot start compute thread {} of {}: {}; use fewer threads",
                             workers_.size() + 2, threads_, error.what()),
                 "threads"};
  }
  return {};
}

WorkerPool::~WorkerPool() {
  stop_.store(true, std::memory_order_release);
  posted_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(posted_);
  for (std::thread& worker : workers_) {
    worker.join();
  }
}

int32_t WorkerPool::open_desk() {
  const int32_t desk = desk_count_.fetch_add(1, std::memory_order_acq_rel);
  CHECK(desk < kMaxDesks, "{} threads bring jobs to one pool", desk + 1);
  return desk;
}

void WorkerPool::run(int32_t desk_index, const PoolJob& job, Scratch& scratch) {
  CHECK(job.chunks >= 1 && job.chunks <= std::numeric_limits<int32_t>::max(), "{} chunks",
        job.chunks);
  Desk& desk = desks_[static_cast<size_t>(desk_index)];
  const auto chunks = static_cast<uint32_t>(job.chunks);
  desk.job = job;
  desk.unfinished.store(chunks, std::memory_order_relaxed);
  const uint64_t generation = (desk.open.load(std::memory_order_relaxed) >> 32) + 1;
  desk.open.store(generation << 32 | chunks, std::memory_order_release);
  // A worker that misses this number reads the desk after it; one that sleeps is woken.
  posted_.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t sleepers = sleepers_.load(std::memory_order_seq_cst);
  if (sleepers > 0 && chunks > 1) {
    futex_wake(posted_, static_cast<int32_t>(std::min(sleepers, chunks - 1)));
  }
  while (take_chunk(desk, scratch)) {
  }
  wait_for_rest(desk);
}

bool WorkerPool::take_chunk(Desk& desk, Scratch& scratch) {
  uint64_t open = desk.open.load(std::memory_order_acquire);
  do {
    if ((open & 0xffffffffU) == 0) {
      return false;
    }
  } while (!desk.open.compare_exchange_weak(open, open - 1, std::memory_order_acquire));
  const PoolJob& job = desk.job;
  const int64_t chunk = job.chunks - static_cast<int64_t>(open & 0xffffffffU);
  job.run(job.context, chunk, scratch.require(job.scratch_bytes));
  if (desk.unfinished.fetch_sub(1, std::memory_order_seq_cst) == 1 &&
      desk.owner_sleeps.load(std::memory_order_seq_cst) != 0) {
    futex_wake(desk.unfinished, 1);
  }
  return true;
}

void WorkerPool::wait_for_rest(Desk& desk) {
  const auto done = [&] { return desk.unfinished.load(std::memory_order_acquire) == 0; };
  if (spin_until(spin_, done)) {
    return;
  }
  desk.owner_sleeps.store(1, std::memory_order_seq_cst);
  for (uint32_t left = desk.unfinished.load(std::memory_order_seq_cst); left != 0;
       left = desk.unfinished.load(std::memory_order_seq_cst)) {
    futex_wait(desk.unfinished, left);
  }
  desk.owner_sleeps.store(0, std::memory_order_relaxed);
}

void WorkerPool::work() {
  Scratch scratch;
  while (true) {
    const uint32_t seen = posted_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_acquire)) {
      return;
    }
    bool worked = false;
    const int32_t desks = std::min(desk_count_.load(std::memory_order_acquire), kMaxDesks);
    for (int32_t i = 0; i < desks; ++i) {
      worked |= take_chunk(desks_[static_cast<size_t>(i)], scratch);
    }
    if (worked ||
        spin_until(spin_, [&] { return posted_.load(std::memory_order_acquire) != seen; })) {
      continue;
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    futex_wait(posted_, seen);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }
}

}  // namespace tandem::device
