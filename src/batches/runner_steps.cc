// The steps of one batch: its check, its lines, its results. runner.cc decides which batch runs.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "batches/batch_request.h"
#include "batches/input_check.h"
#include "batches/results.h"
#include "batches/runner.h"

namespace tandem::batches {

// Whether the row was in state `from` makes no difference: the caller reads it anew.
Result<bool> Runner::save(BatchObject& batch, BatchState from) {
  RETURN_IF_ERROR(store_.change(batch, from));
  return true;
}

Result<bool> Runner::fail(BatchObject& batch, BatchState from, std::vector<BatchFault> faults) {
  batch.state = BatchState::kFailed;
  batch.faults = std::move(faults);
  batch.ended_at = files_.now();
  log::info("batch {} failed: {}", batch.id, batch.faults.front().message);
  ASSIGN_OR_RETURN(const bool saved, store_.change(batch, from));
  if (saved) {
    folder_.remove_batch(batch.id);
    files_.set_work_bytes(batch.id, 0);
    files_.recount();
  }
  return true;
}

std::function<bool()> Runner::stopped_or_cancelled(Live& live) const {
  return [this, &live] { return stopping_ || live.cancelled || live.yields; };
}

Result<bool> Runner::step(BatchObject& batch, Live& live) {
  switch (batch.state) {
    case BatchState::kValidating:
      if (files_.now() >= batch.expires_at) {
        return finalize(batch, live);
      }
      return validate(batch, live);
    case BatchState::kInProgress:
      if (files_.now() >= batch.expires_at) {
        return finalize(batch, live);
      }
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

Result<bool> Runner::finalize(BatchObject& batch, const Live& live) {
  const BatchState from = std::exchange(batch.state, BatchState::kFinalizing);
  batch.finalizing_at = files_.now();
  if (live.counts.total > 0) {
    batch.counts = live.counts;
  }
  return save(batch, from);
}

Result<bool> Runner::validate(BatchObject& batch, Live& live) {
  ASSIGN_OR_RETURN(const InputCheck check,
                   check_input(folder_.input(batch.id), endpoint_of(batch), models_, options_,
                               stopped_or_cancelled(live)));
  if (check.stopped) {
    return !stopping_;
  }
  batch.counts.total = check.lines;
  if (!check.faults.empty()) {
    return fail(batch, BatchState::kValidating, check.faults);
  }
  batch.state = BatchState::kInProgress;
  batch.in_progress_at = files_.now();
  batch.models = check.models;
  log::info("batch {} begins: {} requests", batch.id, check.lines);
  return save(batch, BatchState::kValidating);
}

// Why no batch can run now, which may change by itself.
Status Runner::may_run() const {
  RETURN_IF_ERROR(files_.check_disk());
  if (files_.full()) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("files and answers have used up the space for them ({}); delete files "
                             "that are not needed, or raise --batch-storage",
                             exact_bytes(options_.storage_bytes)),
                 ""};
  }
  for (const openai::OfferedModel& model : models_.models()) {
    if (model.frontend.state() != ServingState::kReady) {
      return Error{ErrorCode::kUnavailable, "the model takes no requests now", ""};
    }
  }
  return {};
}

// A server that was started with another model must not turn each line into an error.
Status Runner::has_models(const BatchObject& batch) const {
  for (const std::string& name : batch.models) {
    if (!models_.find(name).ok()) {
      return Error{ErrorCode::kUnavailable,
                   fmt::format("the batch is for the model '{}', which this server does not have; "
                               "start it with that model, or cancel the batch",
                               shown(name)),
                   ""};
    }
  }
  return {};
}

// What the owner may claim now.
Result<OwnerTerms> Runner::terms_of(const std::string& owner) const {
  if (!own_.terms_of) {
    return OwnerTerms();
  }
  std::optional<OwnerTerms> terms = own_.terms_of(owner);
  if (!terms) {
    return Error{ErrorCode::kForbidden,
                 "the API key that made the batch is not one of the server's any more", ""};
  }
  return *std::move(terms);
}

jobs::BatchRunOptions Runner::run_options(const BatchObject& batch, Live& live,
                                          const OwnerTerms& terms) {
  jobs::BatchRunOptions options;
  options.order = &order_;
  options.max_prompts = own_.max_prompts;
  options.max_answer_bytes = options_.answer_bytes;
  options.max_kept_bytes = options_.answers_bytes;
  options.kept_bytes = &kept_bytes_;
  options.deadline = clock_.now() + std::chrono::seconds(batch.expires_at - files_.now());
  options.tenant = terms.tenant;
  options.grant = terms.grant;
  options.unix_seconds = [this] { return files_.now(); };
  options.should_stop = [this, &batch, terms, asked = stopped_or_cancelled(live)] {
    files_.set_work_bytes(batch.id, folder_.work_bytes(batch.id));
    if (asked() || files_.now() >= batch.expires_at || files_.full() || !files_.check_disk().ok()) {
      return true;
    }
    const Result<OwnerTerms> now = terms_of(batch.owner);  // keys are read again while it runs
    return !now.ok() || *now != terms;
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
  if (progress.synced > 0) {
    set_paused(live, "");
  }
}

// In the database, where they are read until the batch runs again. The answers are in their file.
void Runner::keep_counts(const BatchObject& batch, const Live& live) {
  if (const Status kept = store_.keep_counts(batch.id, live.counts); !kept.ok()) {
    log::warn("{}", kept.error().message);
  }
}

Result<bool> Runner::answer(BatchObject& batch, Live& live) {
  Result<bool> went_on = answer_lines(batch, live);
  if (!went_on.ok() && (stopping_ || live.cancelled)) {
    return !stopping_;  // whatever failed is of no interest any more
  }
  return went_on;
}

Result<bool> Runner::answer_lines(BatchObject& batch, Live& live) {
  files_.set_work_bytes(batch.id, folder_.work_bytes(batch.id));
  RETURN_IF_ERROR(may_run());
  RETURN_IF_ERROR(has_models(batch));
  ASSIGN_OR_RETURN(const OwnerTerms terms, terms_of(batch.owner));
  ASSIGN_OR_RETURN(const jobs::BatchProgress end, run_lines(batch, live, terms));
  if (!end.stopped || files_.now() >= batch.expires_at) {
    return finalize(batch, live);
  }
  if (stopping_ || live.cancelled || live.yields) {
    return !stopping_ && !live.yields;
  }
  RETURN_IF_ERROR(may_run());
  RETURN_IF_ERROR(terms_of(batch.owner));
  return true;
}

// How far the lines came.
Result<jobs::BatchProgress> Runner::run_lines(BatchObject& batch, Live& live,
                                              const OwnerTerms& terms) {
  // Lines were checked when the batch began: a limit that was lowered since does not count.
  const int64_t line_bytes = std::max(options_.line_bytes, batch.input_bytes);
  ASSIGN_OR_RETURN(jobs::BatchInput input,
                   jobs::BatchInput::open(folder_.input(batch.id), line_bytes));
  const std::function<bool()> asked = stopped_or_cancelled(live);
  ASSIGN_OR_RETURN(jobs::BatchOutput output,
                   jobs::BatchOutput::open(folder_.work(batch.id),
                                           {.drops_damage = true, .should_stop = asked}));
  const jobs::WrittenLines& written = output.written();
  if (const int64_t damaged = written.zeroed_bytes + written.foreign_bytes; damaged > 0) {
    log::warn("batch {}: {} bytes of its answers were damaged; their lines are asked again",
              batch.id, damaged);
  }
  ASSIGN_OR_RETURN(const jobs::BatchProgress start, jobs::inspect_batch(input, written, asked));
  if (start.stopped) {
    return start;
  }
  const int64_t failed_before = written.failed;
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
  Result<jobs::BatchProgress> end = jobs::run_batch(input, output, start, models_, clock_, options);
  if (end.ok()) {
    report(live, *end, failed_before);
  }
  keep_counts(batch, live);
  return end;
}

Result<bool> Runner::finish(BatchObject& batch) {
  const BatchState from = batch.state;
  // Results need room beside the answers, which are removed later.
  const int64_t work_bytes = folder_.work_bytes(batch.id);
  files_.set_work_bytes(batch.id, work_bytes);
  if (work_bytes > 0 || from == BatchState::kFinalizing) {
    RETURN_IF_ERROR(files_.check_disk(work_bytes));
  }
  ASSIGN_OR_RETURN(const Results results,
                   write_results(batch, folder_, files_, [this] { return stopping_.load(); }));
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
  const bool expired = results.unanswered > 0 || !batch.in_progress_at;
  batch.state = from == BatchState::kCancelling ? BatchState::kCancelled
                : expired                       ? BatchState::kExpired
                                                : BatchState::kCompleted;
  ASSIGN_OR_RETURN(const bool finished, store_.finish(batch, from, written));
  if (finished) {
    folder_.remove_batch(batch.id);
    log::info("batch {} is {}: {} requests, {} answered, {} errors", batch.id,
              state_name(batch.state), batch.counts.total, batch.counts.completed,
              batch.counts.failed);
    files_.recount();
    files_.set_work_bytes(batch.id, 0);
  }
  return true;
}

}  // namespace tandem::batches
