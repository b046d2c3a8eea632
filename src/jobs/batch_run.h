// Answers the lines of a batch file by the models that they name, many at a time and in the order
// of a LineOrder, and appends each answer to the output as it comes. A line's fault is that line's
// error. Stops early when asked, when the output cannot be written or when the engine fails; what
// was answered is in the output then, and the same call goes on from there.
//
// Threads: run_batch() on one; the engine's thread delivers events to it, and a thread of its own
// reads ahead (jobs/line_feed.h). Borrows everything.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "jobs/batch_input.h"
#include "jobs/batch_output.h"
#include "jobs/line_order.h"
#include "openai/model_directory.h"
#include "request/service.h"

namespace tandem::jobs {

struct BatchProgress {
  int64_t total = 0;   // lines of the input
  int64_t before = 0;  // answered by earlier runs
  int64_t done = 0;    // answered by this run
  int64_t failed = 0;  // of done, those whose answer is an error
  int64_t running = 0;
  int64_t synced = 0;         // of done, those whose answer is on the disk
  int64_t synced_failed = 0;  // of them, those whose answer is an error
  int64_t prompt_tokens = 0;  // of this run
  int64_t output_tokens = 0;
  bool stopped = false;  // asked to, before the end
};

struct BatchRunOptions {
  // Which line is next, and how many sequences may be submitted; shared by runs. Null: an order of
  // this run alone, first come, first served.
  LineOrder* order = nullptr;
  // That the engine's queue takes: a line with more is an error. Absent: any number.
  std::optional<int64_t> max_prompts;
  // Of text and log-probabilities that are kept until a line ends: of a line, and of all lines
  // together, beyond which a line with more than kSmallAnswerBytes becomes an error.
  int64_t max_answer_bytes = int64_t{64} << 20;
  int64_t max_kept_bytes = int64_t{512} << 20;
  std::atomic<int64_t>* kept_bytes = nullptr;  // the total of several runs; null: of this run alone
  // When answers come too late, by the run's clock: the target for the first token of lines that
  // have none, or a later one; and the batch's in `order`. For requests it is an order for
  // policies, no more: see Slo. A deadline further away than kLongestTarget counts as that, and
  // none is shorter than `grant` allows.
  std::optional<Nanos> deadline;
  std::string tenant;  // of all lines: see Request
  ServiceGrant grant;  // what lines may claim beside their class, which is best effort
  Nanos sync_every = std::chrono::milliseconds(500);
  Nanos wake_every = std::chrono::milliseconds(50);  // looks at should_stop and reports
  std::function<bool()> should_stop;
  std::function<void(const BatchProgress&)> on_progress;
  std::function<int64_t()> unix_seconds;  // of "created"
};

// Below it, an answer is never the reason why there is no memory for answers.
inline constexpr int64_t kSmallAnswerBytes = int64_t{1} << 20;

// Counts the input's lines and checks that `output` belongs to it. Leaves `input` at its end.
// `stopped` is set where `should_stop` said so; the counts mean nothing then.
Result<BatchProgress> inspect_batch(BatchInput& input, const WrittenLines& written,
                                    const std::function<bool()>& should_stop = {});

// Needs `start` from inspect_batch. Returns how far it came.
Result<BatchProgress> run_batch(BatchInput& input, BatchOutput& output, BatchProgress start,
                                const openai::ModelDirectory& models, const Clock& clock,
                                const BatchRunOptions& options);

}  // namespace tandem::jobs
