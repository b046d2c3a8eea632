#include "device/cpu/worker_pool.h"

#include <gtest/gtest.h>

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
  auto pool = WorkerPool::create({.threads = 3, .spin = microseconds(5), .cpus = {0, 0}});
  ASSERT_TRUE(pool.ok());
  run_jobs(**pool, 500, 9);
}

}  // namespace
}  // namespace tandem::device
