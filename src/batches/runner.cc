#include "batches/runner.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "batches/results.h"

namespace tandem::batches {

namespace {

// Errors that name a path name its field, too: paths are for the log.
std::string told_to_clients(const Error& error) {
  if (error.param.empty()) {
    return error.message;
  }
  return error.code == ErrorCode::kResourceExhausted
             ? "the disk of --data-folder is full; free some space"
             : "the server cannot use its files now; its log says why";
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
      own_(std::move(own)),
      order_({.max_sequences_ahead = own_.sequences_ahead,
              .make_order = own_.make_order,
              .block_tokens = own_.block_tokens}) {
  threads_.emplace_back([this] { work(Work::kShort); });
  for (int32_t i = 0; i < options_.batches_at_once; ++i) {
    threads_.emplace_back([this] { work(Work::kAnswer); });
  }
}

Runner::~Runner() { stop(); }

void Runner::request_stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

void Runner::stop() {
  request_stop();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) {
      thread.join();
    }
  }
}

void Runner::wake() {
  {
    const std::scoped_lock lock(mutex_);
    ++changes_;
  }
  changed_.notify_all();
}

void Runner::cancel(std::string_view id) {
  {
    const std::scoped_lock lock(mutex_);
    ++changes_;
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
  outlook.paused = live.paused;
  // The row of a batch that is being finished has counts that are as new, or newer.
  if (live.counts.total == 0 || batch.state == BatchState::kFinalizing) {
    return outlook;
  }
  batch.counts = live.counts;
  const int64_t answered = live.counts.completed + live.counts.failed;
  const int64_t here = answered - live.answered_before;
  if (live.running && live.work == Work::kAnswer && here > 0) {
    const double seconds = to_seconds(clock_.now() - live.began);
    const double left = static_cast<double>(live.counts.total - answered);
    outlook.ends_at =
        files_.now() + static_cast<int64_t>(left * seconds / static_cast<double>(here));
  }
  return outlook;
}

void Runner::work(Work kind) {
  while (const std::optional<Claim> claim = take_next(kind)) {
    Status status = bring_on(*claim);
    if (!status.ok()) {
      status = give_up(*claim, status.error());
    }
    release(*claim, status);
  }
}

// Waits for a batch that no thread works on. nullopt: stop. Reads and sweeps without the lock:
// neither clients nor running batches wait for it.
std::optional<Runner::Claim> Runner::take_next(Work kind) {
  constexpr Nanos kLookAgain = std::chrono::seconds(1);  // at paused batches and old files
  while (!stopping_) {
    if (kind == Work::kShort && sweep_is_due()) {
      sweep();
    }
    uint64_t seen = 0;
    {
      const std::scoped_lock lock(mutex_);
      seen = changes_;
    }
    const Result<std::vector<BatchObject>> unfinished = store_.unfinished();
    if (!unfinished.ok()) {
      log::warn("batches wait: {}", unfinished.error().message);
    } else if (std::optional<Claim> claim = claim_one(kind, candidates_of(*unfinished))) {
      return claim;
    }
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, unfinished.ok() ? kLookAgain : options_.retry_after,
                      [&] { return stopping_ || changes_ != seen; });
  }
  return std::nullopt;
}

Runner::Work Runner::work_of(const BatchObject& batch) const {
  return batch.state == BatchState::kInProgress && files_.now() < batch.expires_at ? Work::kAnswer
                                                                                   : Work::kShort;
}

// Asks once for all batches, and once for each owner.
std::vector<Runner::Candidate> Runner::candidates_of(const std::vector<BatchObject>& unfinished) {
  const Status all = may_run();
  std::map<std::string_view, Status> of_owner;
  std::vector<Candidate> candidates;
  candidates.reserve(unfinished.size());
  for (const BatchObject& batch : unfinished) {
    Candidate candidate{.batch = &batch, .work = work_of(batch), .obstacle = {}};
    if (candidate.work == Work::kAnswer) {
      candidate.obstacle = all;
      if (all.ok()) {
        auto found = of_owner.find(batch.owner);
        if (found == of_owner.end()) {
          const Result<OwnerTerms> terms = terms_of(batch.owner);
          found =
              of_owner.emplace(batch.owner, terms.ok() ? Status() : Status(terms.error())).first;
        }
        candidate.obstacle = found->second.ok() ? has_models(batch) : found->second;
      }
    }
    candidates.push_back(std::move(candidate));
  }
  const std::scoped_lock lock(mutex_);
  const std::string_view reason = all.ok() ? "" : std::string_view(all.error().message);
  if (reason != held_back_logged_ && !unfinished.empty()) {
    held_back_logged_ = reason;
    if (!reason.empty()) {
      log::warn("batches wait: {}", reason);
    }
  }
  return candidates;
}

// With the lock. A batch whose lines cannot be answered now says why and is not tried. False:
// nothing stands in its way.
bool Runner::hold_back(const Candidate& candidate) {
  const BatchObject& batch = *candidate.batch;
  auto found = live_.find(batch.id);
  if (candidate.obstacle.ok()) {
    if (found != live_.end() && std::exchange(found->second->held_back, false)) {
      set_paused(*found->second, "");
    }
    return false;
  }
  if (found == live_.end()) {
    found = live_.emplace(batch.id, std::make_shared<Live>()).first;
    found->second->owner = batch.owner;
  }
  Live& live = *found->second;
  const Error& error = candidate.obstacle.error();
  live.held_back = true;
  set_paused(live, told_to_clients(error));
  if (live.logged != error.message && error.message != held_back_logged_) {
    log::warn("batch {} waits: {}", batch.id, error.message);
  }
  live.logged = error.message;
  return true;
}

// With the lock. Of the batches that no thread works on.
const BatchObject* Runner::first_of(Work kind, const std::vector<Candidate>& candidates) {
  std::map<std::string_view, int64_t> running;
  for (const auto& [id, live] : live_) {
    running[live->owner] += live->running && live->work == Work::kAnswer ? 1 : 0;
  }
  const BatchObject* first = nullptr;
  std::pair<int64_t, uint64_t> first_rank;
  for (const Candidate& candidate : candidates) {
    const BatchObject& batch = *candidate.batch;
    const auto found = live_.find(batch.id);
    if (candidate.work != kind || (found != live_.end() && found->second->running) ||
        hold_back(candidate) || (found != live_.end() && found->second->retry_at > clock_.now())) {
      continue;
    }
    const auto turn = turns_.find({kind, batch.owner});
    const std::pair rank(kind == Work::kAnswer ? running[batch.owner] : 0,
                         turn == turns_.end() ? 0 : turn->second);
    if (first == nullptr || rank < first_rank) {
      first = &batch;
      first_rank = rank;
    }
  }
  return first;
}

// The row of the batch may be out of date: until now another thread may have worked on it.
std::optional<Runner::Claim> Runner::claim_one(Work kind,
                                               const std::vector<Candidate>& candidates) {
  const std::scoped_lock lock(mutex_);
  if (kind == Work::kShort) {
    if (const BatchObject* waiting = first_of(Work::kAnswer, candidates)) {
      make_room(*waiting);
    }
  }
  const BatchObject* first = first_of(kind, candidates);
  if (first == nullptr) {
    return std::nullopt;
  }
  std::shared_ptr<Live>& live = live_[first->id];
  if (live == nullptr) {
    live = std::make_shared<Live>();
  }
  live->owner = first->owner;
  live->work = kind;
  live->running = true;
  live->cancelled = false;
  live->yields = false;
  live->claimed_at = clock_.now();
  live->expires_at = first->expires_at;
  turns_[{kind, first->owner}] = ++claims_;
  return Claim{.owner = first->owner, .id = first->id, .work = kind, .live = live};
}

// With the lock. Where no thread is free for the batch that is next, the owner with the most
// running gives up the one whose window ends last.
void Runner::make_room(const BatchObject& waiting) {
  std::map<std::string_view, int64_t> running;
  int64_t all = 0;
  for (const auto& [id, live] : live_) {
    if (live->running && live->work == Work::kAnswer) {
      ++running[live->owner];
      ++all;
      if (live->yields) {
        return;  // there will be room
      }
    }
  }
  if (all < options_.batches_at_once) {
    return;
  }
  Live* last = nullptr;
  std::pair<int64_t, int64_t> last_rank;
  for (const auto& [id, live] : live_) {
    const int64_t more = running[live->owner] - running[waiting.owner];
    const bool had_turn = clock_.now() - live->claimed_at >= options_.turn;
    if (!live->running || live->work != Work::kAnswer || more < (had_turn ? 1 : 2)) {
      continue;
    }
    const std::pair rank(running[live->owner], live->expires_at);
    if (last == nullptr || rank > last_rank) {
      last = live.get();
      last_rank = rank;
    }
  }
  if (last != nullptr) {
    last->yields = true;
  }
}

bool Runner::sweep_is_due() {
  const std::scoped_lock lock(mutex_);
  if (clock_.now() < next_sweep_) {
    return false;
  }
  next_sweep_ = clock_.now() + options_.sweep_every;
  return true;
}

void Runner::sweep() {
  const int64_t keep = std::chrono::duration_cast<std::chrono::seconds>(options_.keep).count();
  const Result<int64_t> removed =
      store_.remove_old(files_.now() - keep, files_.now(), [this] { return stopping_.load(); });
  if (!removed.ok()) {
    log::warn("old files stay: {}", removed.error().message);
  } else if (*removed > 0) {
    log::info("batches: {} old files removed", *removed);
  }
  files_.recount();
}

// With the lock. An empty reason: it runs again.
void Runner::set_paused(Live& live, std::string_view reason) {
  paused_ += (reason.empty() ? 0 : 1) - (live.paused.empty() ? 0 : 1);
  live.paused = reason;
  if (reason.empty()) {
    live.logged.clear();
    live.failures = 0;
  }
}

void Runner::release(const Claim& claim, const Status& status) {
  {
    const std::scoped_lock lock(mutex_);
    ++changes_;  // its next step may be another thread's
    Live& live = *claim.live;
    live.running = false;
    if (status.ok()) {
      set_paused(live, "");
      live_.erase(claim.id);
    } else if (!stopping_) {
      ++live.failures;
      set_paused(live, told_to_clients(status.error()));
      // A cancellation that came meanwhile is looked at now.
      live.retry_at = live.cancelled ? Nanos{0} : clock_.now() + options_.retry_after;
      if (std::exchange(live.logged, status.error().message) != status.error().message) {
        log::warn("batch {} waits: {}", claim.id, status.error().message);
      }
    }
  }
  changed_.notify_all();
}

Status Runner::bring_on(const Claim& claim) {
  for (;;) {
    // Its row now: others may have worked on it before this thread, or cancelled it since.
    Result<BatchObject> batch = store_.batch(claim.owner, claim.id);
    if (!batch.ok() && batch.error().code == ErrorCode::kNotFound) {
      return {};  // it has ended, and is old
    }
    RETURN_IF_ERROR(batch);
    if (stopping_ || has_ended(batch->state) || work_of(*batch) != claim.work) {
      return {};
    }
    ASSIGN_OR_RETURN(const bool went_on, step(*batch, *claim.live));
    if (!went_on) {
      return {};
    }
  }
}

Status Runner::give_up(const Claim& claim, const Error& error) {
  constexpr int32_t kTries = 3;
  const bool may_pass = error.code == ErrorCode::kResourceExhausted ||
                        error.code == ErrorCode::kUnavailable ||
                        error.code == ErrorCode::kForbidden;
  {
    const std::scoped_lock lock(mutex_);
    if (stopping_ || may_pass || files_.now() < claim.live->expires_at ||
        claim.live->failures + 1 < kTries) {
      return error;
    }
  }
  Result<BatchObject> batch = store_.batch(claim.owner, claim.id);
  if (!batch.ok() || has_ended(batch->state)) {
    return error;
  }
  log::error("batch {} ends without its results: {}", claim.id, error.message);
  const Result<bool> failed = fail(*batch, batch->state,
                                   {{.code = std::string(kFilesUnreadable),
                                     .message = told_to_clients(error),
                                     .param = {},
                                     .line = {}}});
  return failed.ok() ? Status() : Status(failed.error());
}

}  // namespace tandem::batches
