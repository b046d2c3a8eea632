#include "device/cpu/worker_pool.h"

#include <algorithm>
#include <limits>
#include <system_error>

#include "base/affinity.h"
#include "base/check.h"
#include "device/cpu/futex.h"
#include "device/cpu/spin.h"

namespace tandem::device {

namespace {

const Seat& seat_of(const std::vector<Seat>& seats, int32_t thread) {
  static const Seat anywhere;
  return seats.empty() ? anywhere : seats[static_cast<size_t>(thread) % seats.size()];
}

Shares count_shares(const WorkerPoolOptions& options) {
  std::vector<int32_t> threads(1, 0);
  for (int32_t i = 0; i < options.threads; ++i) {
    const int32_t share = seat_of(options.seats, i).share;
    const auto last = static_cast<int32_t>(threads.size()) - 1;
    CHECK(share == last || share == last + 1, "thread {} is of share {} after {}", i, share, last);
    threads.resize(static_cast<size_t>(share) + 1, 0);
    ++threads.back();
  }
  return Shares(threads);
}

}  // namespace

Result<std::unique_ptr<WorkerPool>> WorkerPool::create(const WorkerPoolOptions& options) {
  CHECK(options.threads >= 1, "{} threads", options.threads);
  std::unique_ptr<WorkerPool> pool(
      new WorkerPool(options.threads, options.spin, count_shares(options)));
  RETURN_IF_ERROR(pool->start(options.seats));
  return pool;
}

WorkerPool::WorkerPool(int32_t threads, Nanos spin, Shares shares)
    : threads_(threads),
      spin_(spin),
      shares_(std::move(shares)),
      several_nodes_(shares_.count() > 1) {
  if (several_nodes_) {
    for (Desk& desk : desks_) {
      desk.others = std::make_unique<OtherShare[]>(static_cast<size_t>(shares_.count()) - 1);
    }
  }
}

Status WorkerPool::start(const std::vector<Seat>& seats) {
  try {
    workers_.reserve(static_cast<size_t>(threads_));
    for (int32_t i = 1; i < threads_; ++i) {
      workers_.emplace_back([this, seat = seat_of(seats, i)] {
        if (!seat.cpus.empty()) {
          pin_this_thread(seat.cpus);
        }
        work(seat.share);
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
  open_chunks_of(desk);
  // A worker that misses this number reads the desk after it; one that sleeps is woken.
  posted_.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t sleepers = sleepers_.load(std::memory_order_seq_cst);
  if (sleepers > 0 && chunks > 1) {
    futex_wake(posted_, static_cast<int32_t>(std::min(sleepers, chunks - 1)));
  }
  while (take_chunk(desk, 0, scratch)) {
  }
  wait_for_rest(desk);
}

void WorkerPool::open_chunks_of(Desk& desk) {
  const int64_t chunks = desk.job.chunks;
  const uint64_t number = (desk.open.load(std::memory_order_relaxed) >> 32) + 1;
  if (!several_nodes_) {
    desk.open.store(number << 32 | static_cast<uint64_t>(chunks), std::memory_order_release);
    return;
  }
  for (int32_t share = 0; share < shares_.count(); ++share) {
    const int64_t own = by_node(desk.job)
                            ? shares_.begin(chunks, share + 1) - shares_.begin(chunks, share)
                        : share == 0 ? chunks
                                     : 0;
    open_chunks(desk, share)
        .store(number << 32 | static_cast<uint64_t>(own), std::memory_order_release);
  }
  // Whoever came in between would find another's chunks before its own.
  desk.opened.store(static_cast<uint32_t>(number), std::memory_order_release);
}

bool WorkerPool::take_chunk(Desk& desk, int32_t share, Scratch& scratch) {
  if (!several_nodes_) {
    return take_chunk_of(0, desk, 0, scratch);
  }
  const uint32_t number = desk.opened.load(std::memory_order_acquire);
  const int32_t count = shares_.count();
  for (int32_t i = 0; i < count; ++i) {
    const int32_t next = share + i < count ? share + i : share + i - count;
    if (take_chunk_of(next, desk, number, scratch)) {
      return true;
    }
  }
  return false;
}

bool WorkerPool::take_chunk_of(int32_t share, Desk& desk, uint32_t number, Scratch& scratch) {
  OpenChunks& chunks = open_chunks(desk, share);
  uint64_t open = chunks.load(std::memory_order_acquire);
  do {
    if ((open & 0xffffffffU) == 0 || (several_nodes_ && open >> 32 != number)) {
      return false;
    }
  } while (!chunks.compare_exchange_weak(open, open - 1, std::memory_order_acquire));
  const PoolJob& job = desk.job;
  const int64_t end = by_node(job) ? shares_.begin(job.chunks, share + 1) : job.chunks;
  const int64_t chunk = end - static_cast<int64_t>(open & 0xffffffffU);
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

void WorkerPool::work(int32_t share) {
  Scratch scratch;
  while (true) {
    const uint32_t seen = posted_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_acquire)) {
      return;
    }
    bool worked = false;
    const int32_t desks = std::min(desk_count_.load(std::memory_order_acquire), kMaxDesks);
    for (int32_t i = 0; i < desks; ++i) {
      worked |= take_chunk(desks_[static_cast<size_t>(i)], share, scratch);
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
