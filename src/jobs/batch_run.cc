#include "jobs/batch_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/counted_bytes.h"
#include "jobs/line_feed.h"
#include "openai/batch_line.h"
#include "openai/error_body.h"
#include "openai/generation.h"
#include "openai/prompt_submission.h"

namespace tandem::jobs {

namespace {

constexpr uint64_t kTagsPerLine = 1 << 16;  // prompts of a body, at most

// Where the engine's thread leaves events for the run's.
class Inbox final : public TokenSink {
 public:
  void deliver(std::vector<TokenEvent> events) override {
    {
      const std::lock_guard lock(mutex_);
      std::move(events.begin(), events.end(), std::back_inserter(events_));
    }
    wake_.notify_one();
  }
  // Ends a call of take(), now or next.
  void wake() {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    wake_.notify_one();
  }
  std::vector<TokenEvent> take(Nanos patience) {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, patience, [this] { return !events_.empty() || woken_; });
    woken_ = false;
    return std::exchange(events_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<TokenEvent> events_;  // guarded by mutex_
  bool woken_ = false;              // guarded by mutex_
};

class Run {
 public:
  Run(BatchInput& input, BatchOutput& output, BatchProgress start,
      const openai::ModelDirectory& models, const Clock& clock, const BatchRunOptions& options)
      : input_(input),
        output_(output),
        models_(models),
        clock_(clock),
        options_(options),
        progress_(start) {}

  Result<BatchProgress> run() {
    Status status = input_.rewind();
    if (status.ok()) {
      feed_.emplace(input_, output_.written(), models_, order_,
                    LineOrder::Terms{.tenant = options_.tenant,
                                     .deadline = options_.deadline.value_or(Nanos::max()),
                                     .wake = [inbox = inbox_] { inbox->wake(); }});
      status = loop();
    }
    cancel_all();
    feed_.reset();
    // What was answered before the trouble is kept, whatever the trouble was.
    const Status flushed = flush();
    const Status synced = output_.sync();
    RETURN_IF_ERROR(status);
    RETURN_IF_ERROR(flushed);
    RETURN_IF_ERROR(synced);
    count_synced();
    report();
    return progress_;
  }

 private:
  struct Job {
    openai::BatchLineId id;
    std::optional<std::string> custom_id;
    openai::Generation generation;
    openai::PromptSubmission submission;
    int64_t sequences = 0;
    CountedBytes kept;
  };
  // A line that was read but not submitted yet: the queue was full.
  struct Parsed {
    openai::BatchLineId id;
    std::optional<std::string> custom_id;
    openai::RoutedGeneration body;
    [[nodiscard]] int64_t sequences() const {
      return std::max<int64_t>(1, std::ssize(body.request.prompts)) * body.request.n;
    }
  };

  Status loop() {
    for (;;) {
      if (options_.should_stop && options_.should_stop()) {
        progress_.stopped = true;
        return take_events(Nanos{0});  // what has ended already counts
      }
      RETURN_IF_ERROR(admit());
      if (jobs_.empty() && !waiting_ && feed_->exhausted()) {
        return {};
      }
      feed_->read_ahead();
      RETURN_IF_ERROR(flush());
      if (clock_.now() - synced_ >= options_.sync_every) {
        RETURN_IF_ERROR(output_.sync());
        count_synced();
        synced_ = clock_.now();
      }
      report();
      if (!jobs_.empty() || waiting_ || is_starved_) {
        RETURN_IF_ERROR(take_events(options_.wake_every));
      }
    }
  }

  // All that was answered is in the file, and the file on the disk.
  void count_synced() {
    progress_.synced = progress_.done;
    progress_.synced_failed = progress_.failed;
  }

  // Of all runs that share the total.
  [[nodiscard]] int64_t kept_bytes() const { return *kept_total_; }

  // Reads and submits lines until enough is under way. Bounded by bytes, too: lines that need no
  // engine must not pile up answers, and large answers hold back the lines after them. A line of
  // many sequences waits until they fit, or nothing else of this run is under way.
  Status admit() {
    constexpr size_t kMaxPendingBytes = 1 << 20;
    is_starved_ = false;
    for (;;) {
      const int64_t max_ahead = feed_->max_ahead(sequences_ahead_);
      const bool has_memory = jobs_.empty() || kept_bytes() < options_.max_kept_bytes / 2;
      if (pending_.size() >= kMaxPendingBytes || !has_memory) {
        return {};
      }
      // Other batches of the tenant may have all places.
      const bool goes_alone = jobs_.empty() && waiting_;
      if (sequences_ahead_ >= max_ahead && !goes_alone) {
        is_starved_ = true;
        return {};
      }
      if (!waiting_) {
        ASSIGN_OR_RETURN(std::optional<FedLine> line, feed_->next());
        if (!line) {
          is_starved_ = true;
          return {};
        }
        prepare(*std::move(line));
        if (!waiting_) continue;
      }
      if (!jobs_.empty() && sequences_ahead_ + waiting_->sequences() > max_ahead) return {};
      ASSIGN_OR_RETURN(const bool submitted, submit());
      if (!submitted) return {};
    }
  }

  // Leaves the line's request in waiting_, or its error in the output.
  void prepare(FedLine line) {
    const openai::BatchLineId id = line.id;
    if (line.too_long) {
      fail(id, std::nullopt, openai::kLineTooLong,
           fmt::format("line {} is longer than {} bytes: raise --max-line-size, delete this answer "
                       "and run the same command again",
                       id.number, input_.max_line_bytes()));
      return;
    }
    openai::BatchLine& parsed = line.parsed;
    if (line.duplicate) {
      fail(id, parsed.custom_id, openai::kDuplicateCustomId,
           fmt::format("line {}: another line has this custom_id; give each line its own",
                       id.number));
      return;
    }
    if (parsed.error) {
      fail(id, parsed.custom_id, parsed.error_code,
           fmt::format("line {}: {}", id.number, parsed.error->message));
      return;
    }
    Result<openai::RoutedGeneration> body =
        openai::parse_generation(parsed.endpoint, parsed.body, models_);
    if (!body.ok()) {
      refuse(id, parsed.custom_id, body.error(),
             body.error().code == ErrorCode::kNotFound ? "model_not_found" : "");
      return;
    }
    // Whatever a line asks for: no client waits for it.
    body->request.service.service_class = ServiceClass::kBestEffort;
    waiting_ =
        std::make_unique<Parsed>(Parsed{id, std::move(parsed.custom_id), std::move(body).value()});
  }

  // Submits waiting_ whole. False: the queue is full, later. An error: the engine takes no
  // requests.
  Result<bool> submit() {
    const openai::OfferedModel& model = *waiting_->body.model;
    openai::GenerationRequest& generation = waiting_->body.request;
    Result<std::vector<Request>> requests = openai::make_requests(generation, model.parse.model);
    if (!requests.ok()) {
      refuse(waiting_->id, waiting_->custom_id, requests.error(), "context_length_exceeded");
      waiting_.reset();
      return true;
    }
    if (const Status settled =
            openai::settle_service(generation.service, options_.grant, {}, generation, *requests);
        !settled.ok()) {
      refuse(waiting_->id, waiting_->custom_id, settled.error(), "class_not_allowed");
      waiting_.reset();
      return true;
    }
    set_deadline(*requests);
    if (options_.max_prompts && std::ssize(*requests) > *options_.max_prompts) {
      refuse(waiting_->id, waiting_->custom_id,
             invalid_argument(fmt::format("the line has {} prompts, and the queue takes {} "
                                          "(--max-queue-flex); split the line, or raise the limit",
                                          requests->size(), *options_.max_prompts),
                              "prompt"),
             "");
      waiting_.reset();
      return true;
    }
    CHECK(requests->size() < kTagsPerLine, "{} prompts in a line", requests->size());
    const uint64_t key = next_key_++;
    const std::string request_id = openai::batch_request_id(waiting_->id);
    const int64_t sequences = std::ssize(*requests) * generation.n;
    auto submitted = openai::PromptSubmission::submit(
        generation, *std::move(requests),
        {.request_id = request_id,
         .tenant = options_.tenant,
         .sink = inbox_,
         .make_tag = [key](size_t prompt) { return key * kTagsPerLine + prompt; }},
        model.frontend);
    if (const auto* refused = std::get_if<Refusal>(&submitted)) {
      return refused_by_engine(refused->error);
    }
    Job job{.id = waiting_->id,
            .custom_id = waiting_->custom_id,
            .generation = openai::Generation(
                generation,
                {.id = openai::answer_id(generation.endpoint, request_id),
                 .created_unix_seconds = options_.unix_seconds ? options_.unix_seconds() : 0},
                model.parse.tokenizer),
            .submission = std::get<openai::PromptSubmission>(std::move(submitted)),
            .sequences = sequences,
            .kept = CountedBytes(*kept_total_)};
    sequences_ahead_ += sequences;
    jobs_.emplace(key, std::move(job));
    ++progress_.running;
    waiting_.reset();
    return true;
  }

  void set_deadline(std::span<Request> requests) const {
    if (!options_.deadline) {
      return;
    }
    for (Request& request : requests) {
      const int64_t tokens = std::ssize(request.prompt);
      const std::optional<TtftRule>& floor = options_.grant.least_ttft;
      const Nanos min_target = floor ? std::min(floor->target(tokens), kLongestTarget) : Nanos{0};
      const Nanos left = std::clamp(*options_.deadline - clock_.now(),
                                    std::max(min_target, kShortestTarget), kLongestTarget);
      std::optional<TtftRule>& rule = request.slo.ttft;
      if (!rule || rule->target(tokens) > left) {
        rule = TtftRule{.base = left};
      }
    }
  }

  Result<bool> refused_by_engine(const Error& error) {
    if (error.code == ErrorCode::kOverloaded) {
      return false;
    }
    if (error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kInternal) {
      return error;
    }
    refuse(waiting_->id, waiting_->custom_id, error, "");
    waiting_.reset();
    return true;
  }

  Status take_events(Nanos patience) {
    std::vector<TokenEvent> events = inbox_->take(patience);
    Status status;  // an error of one line takes no answer from the others
    for (size_t begin = 0; begin < events.size();) {
      size_t end = begin + 1;
      while (end < events.size() && events[end].tag == events[begin].tag) ++end;
      Status taken = take(std::span(events).subspan(begin, end - begin));
      status = status.ok() ? std::move(taken) : std::move(status);
      begin = end;
    }
    return status;
  }

  // Events of one prompt.
  Status take(std::span<TokenEvent> events) {
    const uint64_t tag = events.front().tag;
    const auto found = jobs_.find(tag / kTagsPerLine);
    if (found == jobs_.end()) {
      return {};  // of a line that failed or was put back
    }
    Job& job = found->second;
    for (const TokenEvent& event : events) {
      progress_.output_tokens += event.kind == TokenEvent::Kind::kToken ? 1 : 0;
    }
    const size_t prompt = tag % kTagsPerLine;
    std::string unused;  // nothing streams
    for (const int32_t choice : job.generation.take(prompt, events, unused)) {
      job.submission.stop(prompt, choice);
    }
    job.kept.set(job.generation.kept_bytes());
    const bool too_large = is_too_large(job);
    if (!job.generation.ended() && !too_large) {
      return {};
    }
    if (too_large && !job.generation.error()) {
      job.submission.cancel();
      fail(job.id, job.custom_id, openai::kAnswerTooLarge,
           fmt::format("line {}: its answer is too large ({} bytes so far; at most {} of a line, "
                       "and {} of all lines under way); ask for fewer tokens, choices or "
                       "log-probabilities",
                       job.id.number, job.kept.bytes(), options_.max_answer_bytes,
                       options_.max_kept_bytes));
    } else if (job.generation.error()) {
      job.submission.cancel();
      if (job.generation.error()->code == ErrorCode::kUnavailable ||
          job.submission.frontend().state() == ServingState::kFailed) {
        return *job.generation.error();
      }
      refuse(job.id, job.custom_id, *job.generation.error(), "");
    } else {
      progress_.prompt_tokens += job.generation.usage().prompt_tokens;
      answer(openai::answered_batch_line(job.id, job.custom_id, 200, job.generation.body()));
    }
    sequences_ahead_ -= job.sequences;
    --progress_.running;
    jobs_.erase(found);
    return {};
  }

  [[nodiscard]] bool is_too_large(const Job& job) const {
    const int64_t bytes = job.kept.bytes();
    return bytes > options_.max_answer_bytes ||
           (bytes > kSmallAnswerBytes && kept_bytes() > options_.max_kept_bytes);
  }

  void answer(std::string line) {
    pending_ += line;
    ++progress_.done;
  }
  // The answer a server would have given.
  void refuse(const openai::BatchLineId& id, const std::optional<std::string>& custom_id,
              const Error& error, std::string_view code) {
    ++progress_.failed;
    answer(openai::answered_batch_line(id, custom_id, openai::http_status(error.code, {}),
                                       openai::error_body(error, code)));
  }
  void fail(const openai::BatchLineId& id, const std::optional<std::string>& custom_id,
            std::string_view code, std::string_view message) {
    ++progress_.failed;
    answer(openai::failed_batch_line(id, custom_id, code, message));
  }

  Status flush() {
    if (pending_.empty()) {
      return {};
    }
    return output_.append(std::exchange(pending_, {}));
  }

  void report() const {
    if (options_.on_progress) {
      options_.on_progress(progress_);
    }
  }

  void cancel_all() {
    for (const auto& [key, job] : jobs_) {
      job.submission.cancel();
    }
    jobs_.clear();
    progress_.running = 0;
  }

  BatchInput& input_;
  BatchOutput& output_;
  const openai::ModelDirectory& models_;
  const Clock& clock_;
  const BatchRunOptions& options_;
  BatchProgress progress_;
  std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  std::atomic<int64_t> own_kept_{0};
  std::atomic<int64_t>* const kept_total_ =
      options_.kept_bytes == nullptr ? &own_kept_ : options_.kept_bytes;
  std::map<uint64_t, Job> jobs_;
  uint64_t next_key_ = 1;
  int64_t sequences_ahead_ = 0;
  std::unique_ptr<Parsed> waiting_;
  std::string pending_;  // answered lines that are not in the file yet
  Nanos synced_{0};
  bool is_starved_ = false;  // there was no line to submit, or no place
  std::optional<LineOrder> own_order_;
  LineOrder& order_ =
      options_.order == nullptr ? own_order_.emplace(LineOrderOptions()) : *options_.order;
  std::optional<LineFeed> feed_;  // while it runs
};

}  // namespace

Result<BatchProgress> inspect_batch(BatchInput& input, const WrittenLines& written,
                                    const std::function<bool()>& should_stop) {
  BatchProgress progress;
  progress.before = std::ssize(written.hash_by_number);
  int64_t matched = 0;
  for (;;) {
    if (should_stop && should_stop()) {
      progress.stopped = true;
      return progress;
    }
    ASSIGN_OR_RETURN(const std::optional<InputLine> line, input.next());
    if (!line) {
      break;
    }
    ++progress.total;
    const auto found = written.hash_by_number.find(line->place.number);
    if (found == written.hash_by_number.end()) {
      continue;
    }
    if (found->second != line->hash) {
      return invalid_argument(
          fmt::format("the output answers another line {} than this batch has: the batch was "
                      "changed, or the output belongs to another one; name another output",
                      line->place.number),
          "output");
    }
    ++matched;
  }
  if (matched != progress.before) {
    return invalid_argument(
        "the output answers lines that this batch does not have: it belongs to "
        "another one; name another output",
        "output");
  }
  return progress;
}

Result<BatchProgress> run_batch(BatchInput& input, BatchOutput& output, BatchProgress start,
                                const openai::ModelDirectory& models, const Clock& clock,
                                const BatchRunOptions& options) {
  return Run(input, output, start, models, clock, options).run();
}

}  // namespace tandem::jobs
