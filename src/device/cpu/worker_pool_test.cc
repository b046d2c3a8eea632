#include "device/cpu/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

namespace tandem::device {
namespace {

using std::chrono::microseconds;

struct Counts {
  std::vector<int32_t> calls;  // by chunk; each chunk belongs to one call, so no atomics
};

PoolJob counting_job(Counts& counts) {
  return {.run =
              [](const void* context, int64_t chunk, void*) {
                ++(*static_cast<Counts* const*>(context))->calls[static_cast<size_t>(chunk)];
              },
          .context = nullptr,
          .chunks = static_cast<int64_t>(counts.calls.size())};
}

// Runs `jobs` jobs of `chunks` chunks and checks that each chunk ran exactly once each time.
void run_jobs(WorkerPool& pool, int32_t jobs, size_t chunks) {
  const int32_t desk = pool.open_desk();
  Scratch scratch;
  Counts counts{std::vector<int32_t>(chunks, 0)};
  Counts* address = &counts;
  PoolJob job = counting_job(counts);
  job.context = &address;
  for (int32_t i = 0; i < jobs; ++i) {
    pool.run(desk, job, scratch);
    const int32_t sum = std::accumulate(counts.calls.begin(), counts.calls.end(), 0);
    ASSERT_EQ(sum, (i + 1) * static_cast<int32_t>(chunks));
  }
  for (const int32_t calls : counts.calls) {
    EXPECT_EQ(calls, jobs);
  }
}

TEST(WorkerPool, EveryChunkRunsExactlyOnceUnderManyTinyJobs) {
  auto pool = WorkerPool::create({.threads = 4, .spin = microseconds(20)});
  ASSERT_TRUE(pool.ok());
  run_jobs(**pool, 5000, 7);
}

TEST(WorkerPool, WorkersThatNeverSpinAreWokenForEveryJob) {
  auto pool = WorkerPool::create({.threads = 3});
  ASSERT_TRUE(pool.ok());
  run_jobs(**pool, 2000, 5);
}

TEST(WorkerPool, OneThreadDoesItAllItself) {
  auto pool = WorkerPool::create({.threads = 1});
  ASSERT_TRUE(pool.ok());
  run_jobs(**pool, 10, 100);
}

TEST(WorkerPool, SeveralThreadsBringJobsAtOnce) {
  auto pool = WorkerPool::create({.threads = 3, .spin = microseconds(5)});
  ASSERT_TRUE(pool.ok());
  std::vector<std::thread> bringers;
  for (int i = 0; i < 3; ++i) {
    bringers.emplace_back([&] { run_jobs(**pool, 1000, 6); });
  }
  for (std::thread& bringer : bringers) {
    bringer.join();
  }
}

TEST(WorkerPool, EachThreadHasAWorkspaceOfTheSizeAskedFor) {
  auto pool = WorkerPool::create({.threads = 3});
  ASSERT_TRUE(pool.ok());
  const int32_t desk = (*pool)->open_desk();
  Scratch scratch;
  for (int64_t bytes : {int64_t{100}, int64_t{1} << 20, int64_t{3} << 20}) {
    (*pool)->run(desk,
                 {.run =
                      [](const void* context, int64_t chunk, void* workspace) {
                        const int64_t size = *static_cast<const int64_t*>(context);
                        auto* first = static_cast<unsigned char*>(workspace);
                        ASSERT_EQ(reinterpret_cast<uintptr_t>(workspace) % 64, 0U);
                        for (int64_t i = 0; i < size; i += 64) {
                          first[i] = static_cast<unsigned char>(chunk);
                        }
                        for (int64_t i = 0; i < size; i += 64) {
                          ASSERT_EQ(first[i], static_cast<unsigned char>(chunk));
                        }
                      },
                  .context = &bytes,
                  .chunks = 12,
                  .scratch_bytes = bytes},
                 scratch);
  }
}

TEST(WorkerPool, PinnedWorkersComputeTheSame) {
  auto pool = WorkerPool::create(
      {.threads = 3, .spin = microseconds(5), .seats = seats_at(std::vector{0, 0})});
  ASSERT_TRUE(pool.ok());
  run_jobs(**pool, 500, 9);
}

// --- several nodes

// Nodes that are made up: threads of one CPU play them.
std::vector<Seat> two_shares(int32_t first, int32_t second) {
  std::vector<Seat> seats(static_cast<size_t>(first + second));
  for (size_t i = static_cast<size_t>(first); i < seats.size(); ++i) {
    seats[i].share = 1;
  }
  return seats;
}

TEST(WorkerPool, OnSeveralNodesEveryChunkRunsExactlyOnceInEitherOrder) {
  auto pool =
      WorkerPool::create({.threads = 5, .spin = microseconds(20), .seats = two_shares(2, 3)});
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ((*pool)->shares().count(), 2);
  const int32_t desk = (*pool)->open_desk();
  Scratch scratch;
  for (int32_t round = 0; round < 3000; ++round) {
    Counts counts{std::vector<int32_t>(static_cast<size_t>(1 + round % 23), 0)};
    Counts* address = &counts;
    PoolJob job = counting_job(counts);
    job.context = &address;
    job.order = round % 3 == 0 ? ChunkOrder::kAsTheyCome : ChunkOrder::kOwnNodeFirst;
    (*pool)->run(desk, job, scratch);
    for (const int32_t calls : counts.calls) {
      ASSERT_EQ(calls, 1);
    }
  }
}

// Who ran which chunk, in what order; the second thread is held in its first chunk.
struct Meeting {
  std::thread::id bringer;
  int64_t held_until = 0;  // so many chunks are done
  std::atomic<int64_t> worker_first{-1};
  std::atomic<int64_t> done{0};
  std::vector<int64_t> by_bringer;

  void run(int64_t chunk) {
    if (std::this_thread::get_id() == bringer) {
      by_bringer.push_back(chunk);
      while (worker_first.load() < 0) {
        std::this_thread::yield();
      }
    } else if (int64_t none = -1; worker_first.compare_exchange_strong(none, chunk)) {
      while (done.load() < held_until) {
        std::this_thread::yield();
      }
    }
    done.fetch_add(1);
  }
};

// Eight chunks for this thread and one worker.
void meet(WorkerPool& pool, int32_t desk, ChunkOrder order, Meeting& meeting) {
  Scratch scratch;
  Meeting* address = &meeting;
  pool.run(desk,
           {.run = [](const void* context, int64_t chunk,
                      void*) { (*static_cast<Meeting* const*>(context))->run(chunk); },
            .context = &address,
            .chunks = 8,
            .order = order},
           scratch);
}

TEST(WorkerPool, AThreadTakesItsOwnNodesChunksFirstAndThenHelps) {
  auto pool =
      WorkerPool::create({.threads = 2, .spin = microseconds(20), .seats = two_shares(1, 1)});
  ASSERT_TRUE(pool.ok());
  const int32_t desk = (*pool)->open_desk();
  for (int32_t round = 0; round < 50; ++round) {
    Meeting meeting{.bringer = std::this_thread::get_id(), .held_until = 7};
    meet(**pool, desk, ChunkOrder::kOwnNodeFirst, meeting);
    EXPECT_EQ(meeting.worker_first, 4);
    EXPECT_EQ(meeting.by_bringer, (std::vector<int64_t>{0, 1, 2, 3, 5, 6, 7}));
  }
}

TEST(WorkerPool, ChunksWithoutNodesAreTakenInOrderOnSeveralNodesToo) {
  auto pool =
      WorkerPool::create({.threads = 2, .spin = microseconds(20), .seats = two_shares(1, 1)});
  ASSERT_TRUE(pool.ok());
  const int32_t desk = (*pool)->open_desk();
  Meeting meeting{.bringer = std::this_thread::get_id(), .held_until = 7};
  meet(**pool, desk, ChunkOrder::kAsTheyCome, meeting);
  EXPECT_LT(meeting.worker_first, 2);
  EXPECT_EQ(meeting.by_bringer.back(), 7);
}

}  // namespace
}  // namespace tandem::device
