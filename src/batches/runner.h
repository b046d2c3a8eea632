// Brings batches to their end: checks their input, has their lines answered (jobs/batch_run.h),
// writes their results. Several at a time, those first whose window ends first and whose owner has
// the fewest running; together they keep a bounded number of sequences submitted. All that is known
// of a batch is on the disk, so that it goes on wherever the server was stopped or killed. A batch
// that cannot go on (the disk is full, no space is left for files, the model failed) pauses, says
// why, and is tried again. Threads: own ones; functions may be called from any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "batches/batch_options.h"
#include "batches/data_folder.h"
#include "batches/files.h"
#include "batches/objects.h"
#include "batches/store.h"
#include "jobs/batch_run.h"
#include "openai/model_directory.h"
#include "request/service.h"

namespace tandem::batches {

// What the lines of an owner's batches may claim, and whose prefixes they share.
struct OwnerTerms {
  ServiceGrant grant;
  std::string tenant;
};

struct RunnerOptions {
  int64_t sequences_ahead = 512;  // submitted and unfinished, of all batches
  // nullopt: the owner is not known any more, and its batches pause. Absent: all are known.
  std::function<std::optional<OwnerTerms>(const std::string& owner)> terms_of;
};

class Runner {
 public:
  // Borrows everything.
  Runner(const DataFolder& folder, Store& store, Files& files, const BatchOptions& options,
         const openai::ModelDirectory& models, const Clock& clock, RunnerOptions own);
  ~Runner();  // as stop()
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Batches stop where they are; returns when no line of theirs is submitted any more.
  void stop();
  // There is something new in the store.
  void wake();
  // The store says that this batch is being cancelled.
  void cancel(std::string_view id);

  // Fills in what a running batch has answered since its row was written.
  BatchOutlook look(BatchObject& batch) const;
  [[nodiscard]] int64_t completed_lines() const { return completed_lines_; }
  [[nodiscard]] int64_t failed_lines() const { return failed_lines_; }
  [[nodiscard]] int64_t paused() const { return paused_; }

 private:
  // A batch that a thread works on, or that waits to be tried again.
  struct Live {
    explicit Live(CountedBytes counted) : space(std::move(counted)) {}
    std::string owner;
    CountedBytes space;  // of its answers so far; the thread's that works on it
    bool running = true;
    Nanos retry_at{0};
    std::string paused;
    std::atomic<bool> cancelled{false};
    LineCounts counts;  // total 0: its input was not read yet
    Nanos began{0};
    int64_t answered_before = 0;
  };

  void work();
  std::optional<BatchObject> take_next();
  std::shared_ptr<Live> live_of(const std::string& id) const;
  void release(const BatchObject& batch, const Status& status);
  void sweep();

  // Each brings the batch to its next state. False: it was stopped.
  Status bring_on(BatchObject batch, Live& live);
  Result<bool> step(BatchObject& batch, Live& live);
  Result<bool> validate(BatchObject& batch, Live& live);
  Result<bool> answer(BatchObject& batch, Live& live);
  Result<bool> finish(BatchObject& batch);
  Result<bool> save(BatchObject& batch, BatchState from);
  jobs::BatchRunOptions run_options(const BatchObject& batch, Live& live, const OwnerTerms& terms);
  void report(Live& live, const jobs::BatchProgress& progress, int64_t failed_before);
  void keep_counts(const BatchObject& batch, const Live& live);
  Status may_run(const BatchObject& batch) const;

  const DataFolder& folder_;
  Store& store_;
  Files& files_;
  const BatchOptions& options_;
  const openai::ModelDirectory& models_;
  const Clock& clock_;
  const RunnerOptions own_;
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> running_{0};
  std::atomic<int64_t> completed_lines_{0};
  std::atomic<int64_t> failed_lines_{0};
  std::atomic<int64_t> paused_{0};

  mutable std::mutex
      mutex_;  // guards what follows, and what Live holds but `cancelled` and `space`
  std::condition_variable changed_;
  std::map<std::string, std::shared_ptr<Live>, std::less<>> live_;
  Nanos next_sweep_{0};
  std::vector<std::thread> threads_;
};

}  // namespace tandem::batches
