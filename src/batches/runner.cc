#include "batches/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "batches/batch_request.h"
#include "batches/input_check.h"
#include "batches/results.h"

namespace tandem::batches {

namespace {

int64_t size_of_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

}  // namespace

Runner::Runner(const DataFolder& folder, Store& store, Files& files, const BatchOptions& options,
               const openai::ModelDirectory& models, const Clock& clock, RunnerOptions own)
    : folder_(folder),
      store_(store),
      files_(files),
      options_(options),
      models_(models),
      clock_(clock),
      own_(std::move(own)) {
  for (int32_t i = 0; i < options_.batches_at_once; ++i) {
    threads_.emplace_back([this] { work(); });
  }
}

Runner::~Runner() { stop(); }

void Runner::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) {
      thread.join();
    }
  }
}

void Runner::wake() {
  { const std::scoped_lock lock(mutex_); }
  changed_.notify_all();
}

void Runner::cancel(std::string_view id) {
  {
    const std::scoped_lock lock(mutex_);
    if (const auto found = live_.find(id); found != live_.end()) {
      found->second->cancelled = true;
      found->second->retry_at = Nanos{0};
    }
  }
  changed_.notify_all();
}

BatchOutlook Runner::look(BatchObject& batch) const {
  BatchOutlook outlook;
  const std::scoped_lock lock(mutex_);
  const auto found = live_.find(batch.id);
  if (found == live_.end() || has_ended(batch.state)) {
    return outlook;
  }
  const Live& live = *found->second;
  outlook.paused = live.running ? "" : live.paused;
  if (live.counts.total == 0) {
    return outlook;
  }
  batch.counts = live.counts;
  const int64_t answered = live.counts.completed + live.counts.failed;
  const int64_t here = answered - live.answered_before;
  if (live.running && here > 0) {
    const double seconds = to_seconds(clock_.now() - live.began);
    const double left = static_cast<double>(live.counts.total - answered);
    outlook.ends_at =
        files_.now() + static_cast<int64_t>(left * seconds / static_cast<double>(here));
  }
  return outlook;
}

void Runner::work() {
  while (std::optional<BatchObject> batch = take_next()) {
    const std::shared_ptr<Live> live = live_of(batch->id);
    ++running_;
    const Status status = bring_on(*batch, *live);
    --running_;
    release(*batch, status);
  }
}

std::shared_ptr<Runner::Live> Runner::live_of(const std::string& id) const {
  const std::scoped_lock lock(mutex_);
  return live_.find(id)->second;
}

// Waits for a batch that no thread works on. nullopt: stop.
std::optional<BatchObject> Runner::take_next() {
  constexpr std::chrono::seconds kLookAgain(1);  // for paused batches, and for what is old
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (clock_.now() >= next_sweep_) {
      next_sweep_ = clock_.now() + options_.sweep_every;
      sweep();
    }
    Result<std::vector<BatchObject>> unfinished = store_.unfinished();
    if (!unfinished.ok()) {
      log::warn("batches wait: {}", unfinished.error().message);
      changed_.wait_for(lock, options_.retry_after);
      continue;
    }
    BatchObject* next = nullptr;
    int64_t least_running = 0;
    for (BatchObject& batch : *unfinished) {
      const auto found = live_.find(batch.id);
      if (found != live_.end() &&
          (found->second->running || found->second->retry_at > clock_.now())) {
        continue;
      }
      const int64_t running = std::ranges::count_if(live_, [&batch](const auto& item) {
        return item.second->running && item.second->owner == batch.owner;
      });
      if (next == nullptr || running < least_running) {
        next = &batch;
        least_running = running;
      }
    }
    if (next != nullptr) {
      auto live = std::make_shared<Live>(files_.begin_counting());
      live->owner = next->owner;
      paused_ -= live_.contains(next->id) ? 1 : 0;
      live_[next->id] = std::move(live);
      return std::move(*next);
    }
    changed_.wait_for(lock, kLookAgain);
  }
  return std::nullopt;
}

void Runner::sweep() {
  const int64_t keep = std::chrono::duration_cast<std::chrono::seconds>(options_.keep).count();
  const Result<int64_t> removed = store_.remove_old(files_.now() - keep, files_.now());
  if (!removed.ok()) {
    log::warn("old files stay: {}", removed.error().message);
  } else if (*removed > 0) {
    log::info("batches: {} old files removed", *removed);
  }
  if (const Status status = files_.refresh(); !status.ok()) {
    log::warn("{}", status.error().message);
  }
}

void Runner::release(const BatchObject& batch, const Status& status) {
  const std::scoped_lock lock(mutex_);
  const auto found = live_.find(batch.id);
  if (status.ok()) {
    live_.erase(found);
    return;
  }
  Live& live = *found->second;
  ++paused_;
  live.running = false;
  live.paused = status.error().message;
  // A cancellation that came meanwhile is looked at now.
  live.retry_at = live.cancelled ? Nanos{0} : clock_.now() + options_.retry_after;
  log::warn("batch {} waits: {}", batch.id, status.error().message);
}

Status Runner::bring_on(BatchObject batch, Live& live) {
  while (!stopping_ && !has_ended(batch.state)) {
    ASSIGN_OR_RETURN(const bool went_on, step(batch, live));
    if (!went_on) {
      return {};
    }
    // It may be being cancelled since.
    Result<BatchObject> now = store_.batch(batch.owner, batch.id);
    if (!now.ok()) {
      return now.error();
    }
    batch = *std::move(now);
  }
  return {};
}

Result<bool> Runner::step(BatchObject& batch, Live& live) {
  switch (batch.state) {
    case BatchState::kValidating:
      return validate(batch, live);
    case BatchState::kInProgress:
      return answer(batch, live);
    case BatchState::kFinalizing:
    case BatchState::kCancelling:
      return finish(batch);
    case BatchState::kCompleted:
    case BatchState::kFailed:
    case BatchState::kExpired:
    case BatchState::kCancelled:
      break;
  }
  return false;
}

// Whether the row was in state `from` makes no difference: the caller reads it anew.
Result<bool> Runner::save(BatchObject& batch, BatchState from) {
  RETURN_IF_ERROR(store_.change(batch, from));
  return true;
}

Result<bool> Runner::validate(BatchObject& batch, Live& live) {
  ASSIGN_OR_RETURN(const InputCheck check,
                   check_input(folder_.input(batch.id), endpoint_of(batch), models_, options_,
                               [this, &live] { return stopping_ || live.cancelled; }));
  if (check.stopped) {
    return !stopping_;
  }
  batch.counts.total = check.lines;
  if (check.faults.empty()) {
    batch.state = BatchState::kInProgress;
    batch.in_progress_at = files_.now();
    log::info("batch {} begins: {} requests", batch.id, check.lines);
    return save(batch, BatchState::kValidating);
  }
  batch.state = BatchState::kFailed;
  batch.faults = check.faults;
  batch.ended_at = files_.now();
  log::info("batch {} failed: {}", batch.id, check.faults.front().message);
  ASSIGN_OR_RETURN(const bool saved, store_.change(batch, BatchState::kValidating));
  if (saved) {
    folder_.remove_batch(batch.id);
    RETURN_IF_ERROR(files_.refresh());
  }
  return true;
}

// Why a batch cannot run now, which may change by itself.
Status Runner::may_run(const BatchObject& batch) const {
  if (folder_.free_bytes() < options_.min_free_bytes) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("the disk of --data-folder has less than {} left; free some space",
                             exact_bytes(options_.min_free_bytes)),
                 ""};
  }
  if (files_.full()) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("files and answers have used up the space for them ({}); delete files "
                             "that are not needed, or raise --batch-storage",
                             exact_bytes(options_.storage_bytes)),
                 ""};
  }
  if (own_.terms_of && !own_.terms_of(batch.owner)) {
    return Error{ErrorCode::kForbidden,
                 "the API key that made the batch is not one of the server's any more", ""};
  }
  for (const openai::OfferedModel& model : models_.models()) {
    if (model.frontend.state() != ServingState::kReady) {
      return Error{ErrorCode::kUnavailable, "the model takes no requests now", ""};
    }
  }
  return {};
}

jobs::BatchRunOptions Runner::run_options(const BatchObject& batch, Live& live,
                                          const OwnerTerms& terms) {
  jobs::BatchRunOptions options;
  options.max_sequences_ahead = [this] {
    return std::max<int64_t>(1, own_.sequences_ahead / std::max<int64_t>(1, running_));
  };
  options.tenant = terms.tenant;
  options.grant = terms.grant;
  options.unix_seconds = [this] { return files_.now(); };
  options.should_stop = [this, &batch, &live] {
    live.space.set(size_of_file(folder_.work(batch.id)));
    return stopping_ || live.cancelled || files_.now() >= batch.expires_at || files_.full();
  };
  return options;
}

void Runner::report(Live& live, const jobs::BatchProgress& progress, int64_t failed_before) {
  const LineCounts counts{
      .total = progress.total,
      .completed = progress.before - failed_before + progress.synced - progress.synced_failed,
      .failed = failed_before + progress.synced_failed};
  const std::scoped_lock lock(mutex_);
  completed_lines_ += counts.completed - live.counts.completed;
  failed_lines_ += counts.failed - live.counts.failed;
  live.counts = counts;
}

// In the database, where they are read until the batch runs again. The answers are in their file.
void Runner::keep_counts(const BatchObject& batch, const Live& live) {
  if (const Status kept = store_.keep_counts(batch.id, live.counts); !kept.ok()) {
    log::warn("{}", kept.error().message);
  }
}

Result<bool> Runner::answer(BatchObject& batch, Live& live) {
  const auto finalize = [this, &batch] {
    batch.state = BatchState::kFinalizing;
    batch.finalizing_at = files_.now();
    return save(batch, BatchState::kInProgress);
  };
  if (files_.now() >= batch.expires_at) {
    return finalize();
  }
  live.space.set(size_of_file(folder_.work(batch.id)));
  RETURN_IF_ERROR(may_run(batch));
  const OwnerTerms terms =
      own_.terms_of ? own_.terms_of(batch.owner).value_or(OwnerTerms()) : OwnerTerms();
  ASSIGN_OR_RETURN(jobs::BatchInput input,
                   jobs::BatchInput::open(folder_.input(batch.id), options_.line_bytes));
  ASSIGN_OR_RETURN(jobs::BatchOutput output, jobs::BatchOutput::open(folder_.work(batch.id)));
  ASSIGN_OR_RETURN(const jobs::BatchProgress start, jobs::inspect_batch(input, output.written()));
  const int64_t failed_before = output.written().failed;
  {
    const std::scoped_lock lock(mutex_);
    live.counts = {
        .total = start.total, .completed = start.before - failed_before, .failed = failed_before};
    live.began = clock_.now();
    live.answered_before = start.before;
  }
  jobs::BatchRunOptions options = run_options(batch, live, terms);
  Nanos kept{0};
  int64_t synced = 0;
  options.on_progress = [&](const jobs::BatchProgress& progress) {
    if (progress.synced == std::exchange(synced, progress.synced)) {
      return;
    }
    report(live, progress, failed_before);
    if (clock_.now() - kept >= options_.keep_counts_every) {
      kept = clock_.now();
      keep_counts(batch, live);
    }
  };
  ASSIGN_OR_RETURN(const jobs::BatchProgress end,
                   jobs::run_batch(input, output, start, models_, clock_, options));
  report(live, end, failed_before);
  keep_counts(batch, live);
  if (!end.stopped || files_.now() >= batch.expires_at) {
    return finalize();
  }
  if (stopping_ || live.cancelled) {
    return !stopping_;
  }
  RETURN_IF_ERROR(may_run(batch));
  return true;
}

Result<bool> Runner::finish(BatchObject& batch) {
  const BatchState from = batch.state;
  ASSIGN_OR_RETURN(const Results results, write_results(batch, folder_, files_, options_));
  std::vector<FileObject> written;
  for (const auto& [file, id] : {std::pair(&results.output, &batch.output_file_id),
                                 std::pair(&results.errors, &batch.error_file_id)}) {
    if (*file) {
      written.push_back(**file);
      *id = (*file)->id;
    }
  }
  batch.counts = results.counts;
  batch.ended_at = files_.now();
  batch.state = from == BatchState::kCancelling ? BatchState::kCancelled
                : results.unanswered > 0        ? BatchState::kExpired
                                                : BatchState::kCompleted;
  ASSIGN_OR_RETURN(const bool finished, store_.finish(batch, from, written));
  if (finished) {
    folder_.remove_batch(batch.id);
    log::info("batch {} is {}: {} requests, {} answered, {} errors", batch.id,
              state_name(batch.state), batch.counts.total, batch.counts.completed,
              batch.counts.failed);
    RETURN_IF_ERROR(files_.refresh());
  }
  return true;
}

}  // namespace tandem::batches
