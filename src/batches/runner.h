// Brings batches to their end: checks their input, has their lines answered (jobs/batch_run.h),
// writes their results. Several are answered at a time: the owner with the fewest is next, of
// equals the owner whose last batch began first; of its batches, the first by the end of the
// window. A batch makes room for another owner's, at once if that owner has two fewer, else after
// its turn. Other work (checks, results, cancellations, ends of windows, old files) has a thread of
// its own. Together batches keep a bounded number of sequences submitted, in the order of
// jobs/line_order.h. All that is known of a batch is on the disk, so that it
// continues wherever the server was stopped or killed. A batch that cannot continue (the disk is
// full, no space is left for files, the model failed) pauses, says why, and is tried again.
// Threads: own ones; functions may be called from any.
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
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "batches/batch_options.h"
#include "batches/data_folder.h"
#include "batches/files.h"
#include "batches/objects.h"
#include "batches/store.h"
#include "jobs/batch_run.h"
#include "jobs/line_order.h"
#include "openai/model_directory.h"
#include "request/service.h"

namespace tandem::batches {

// What the lines of an owner's batches may claim, and whose prefixes they share.
struct OwnerTerms {
  ServiceGrant grant;
  std::string tenant;
  bool operator==(const OwnerTerms&) const = default;
};

struct RunnerOptions {
  int64_t sequences_ahead = 512;       // as LineOrderOptions::max_sequences_ahead
  std::optional<int64_t> max_prompts;  // of a line; see BatchRunOptions
  // Asked again and again while a batch runs. Where the terms change, lines under way are cancelled
  // and asked once more under the new ones. nullopt: the owner is not known any more, and its
  // batches pause. Absent: all are known.
  std::function<std::optional<OwnerTerms>(const std::string& owner)> terms_of;
  // As of LineOrderOptions.
  std::function<std::unique_ptr<QueueOrder>()> make_order = {};
  int32_t block_tokens = 32;
};

class Runner {
 public:
  // Borrows everything.
  Runner(const DataFolder& folder, Store& store, Files& files, const BatchOptions& options,
         const openai::ModelDirectory& models, const Clock& clock, RunnerOptions own);
  ~Runner();  // as stop()
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Batches stop where they are, soon. Does not wait.
  void request_stop();
  // The same; returns when no line of theirs is submitted any more.
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
  // What threads do: answer lines, or the short steps before and after.
  enum class Work : uint8_t { kAnswer, kShort };

  // A batch that a thread works on, or that waits to be tried again.
  struct Live {
    std::string owner;
    Work work = Work::kShort;
    bool running = false;
    bool held_back = false;  // paused without being tried: see obstacle()
    Nanos retry_at{0};
    std::string paused;    // until a line is answered
    std::string logged;    // the reason that the log has
    int32_t failures = 0;  // in a row
    std::atomic<bool> cancelled{false};
    std::atomic<bool> yields{false};  // to another owner's
    Nanos claimed_at{0};
    int64_t expires_at = 0;
    LineCounts counts;  // total 0: its input was not read yet
    Nanos began{0};
    int64_t answered_before = 0;
  };

  // A batch that the calling thread alone works on.
  struct Claim {
    std::string owner;
    std::string id;
    Work work = Work::kShort;
    std::shared_ptr<Live> live;
  };
  // An unfinished batch, and its obstacle.
  struct Candidate {
    const BatchObject* batch = nullptr;
    Work work = Work::kShort;
    Status obstacle;
  };

  void work(Work kind);
  std::optional<Claim> take_next(Work kind);
  std::vector<Candidate> candidates_of(const std::vector<BatchObject>& unfinished);
  std::optional<Claim> claim_one(Work kind, const std::vector<Candidate>& candidates);
  const BatchObject* first_of(Work kind, const std::vector<Candidate>& candidates);
  bool hold_back(const Candidate& candidate);
  void make_room(const BatchObject& waiting);
  void set_paused(Live& live, std::string_view reason);
  void release(const Claim& claim, const Status& status);
  bool sweep_is_due();
  void sweep();
  [[nodiscard]] Work work_of(const BatchObject& batch) const;
  [[nodiscard]] std::function<bool()> stopped_or_cancelled(Live& live) const;

  Status bring_on(const Claim& claim);
  // Each brings the batch to its next state. False: it was stopped.
  Result<bool> step(BatchObject& batch, Live& live);
  Result<bool> validate(BatchObject& batch, Live& live);
  Result<bool> finalize(BatchObject& batch, const Live& live);
  Result<bool> answer(BatchObject& batch, Live& live);
  Result<bool> answer_lines(BatchObject& batch, Live& live);
  Result<jobs::BatchProgress> run_lines(BatchObject& batch, Live& live, const OwnerTerms& terms);
  Result<bool> finish(BatchObject& batch);
  Result<bool> save(BatchObject& batch, BatchState from);
  Result<bool> fail(BatchObject& batch, BatchState from, std::vector<BatchFault> faults);
  // Of a batch that has failed again and again, and whose window has ended.
  Status give_up(const Claim& claim, const Error& error);
  jobs::BatchRunOptions run_options(const BatchObject& batch, Live& live, const OwnerTerms& terms);
  void report(Live& live, const jobs::BatchProgress& progress, int64_t failed_before);
  void keep_counts(const BatchObject& batch, const Live& live);
  [[nodiscard]] Status may_run() const;
  [[nodiscard]] Status has_models(const BatchObject& batch) const;
  [[nodiscard]] Result<OwnerTerms> terms_of(const std::string& owner) const;

  const DataFolder& folder_;
  Store& store_;
  Files& files_;
  const BatchOptions& options_;
  const openai::ModelDirectory& models_;
  const Clock& clock_;
  const RunnerOptions own_;
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> completed_lines_{0};
  std::atomic<int64_t> failed_lines_{0};
  std::atomic<int64_t> paused_{0};
  std::atomic<int64_t> kept_bytes_{0};  // see BatchRunOptions
  jobs::LineOrder order_;               // shared by all running batches

  mutable std::mutex mutex_;  // guards the rest, and Live without its atomics
  std::condition_variable changed_;
  std::map<std::string, std::shared_ptr<Live>, std::less<>> live_;
  // When an owner's batch was last claimed for each kind of work, in claims.
  std::map<std::pair<Work, std::string>, uint64_t> turns_;
  uint64_t claims_ = 0;
  std::string held_back_logged_;  // the reason that holds all batches back
  uint64_t changes_ = 0;          // that may give an idle thread something to do
  Nanos next_sweep_{0};
  std::vector<std::thread> threads_;
};

}  // namespace tandem::batches
