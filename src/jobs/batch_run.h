// Answers the lines of a batch file by the models that they name, many at a time, and appends each
// answer to the output as it comes. A line's fault is that line's error. Stops early when asked,
// when the output cannot be written or when the engine fails; what was answered is in the output
// then, and the same call goes on from there.
//
// Threads: run() on one; the engine's thread delivers events to it. Borrows everything.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "jobs/batch_input.h"
#include "jobs/batch_output.h"
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
  // Sequences that are submitted and unfinished, at most; enough to fill the engine's steps. Asked
  // before each line. Absent: 512.
  std::function<int64_t()> max_sequences_ahead;
  std::string tenant;  // of all lines: see Request
  ServiceGrant grant;  // what lines may claim beside their class, which is best effort
  Nanos sync_every = std::chrono::milliseconds(500);
  Nanos wake_every = std::chrono::milliseconds(50);  // looks at should_stop and reports
  std::function<bool()> should_stop;
  std::function<void(const BatchProgress&)> on_progress;
  std::function<int64_t()> unix_seconds;  // of "created"
};

// Counts the input's lines and checks that `output` belongs to it. Leaves `input` at its end.
Result<BatchProgress> inspect_batch(BatchInput& input, const WrittenLines& written);

// Needs `start` from inspect_batch. Returns how far it came.
Result<BatchProgress> run_batch(BatchInput& input, BatchOutput& output, BatchProgress start,
                                const openai::ModelDirectory& models, const Clock& clock,
                                const BatchRunOptions& options);

}  // namespace tandem::jobs
