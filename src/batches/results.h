// The end of a batch: its answers, written in the order in which they came, become two files, one
// of answers and one of errors. Interrupted, it is done once more from the beginning. Threads: any;
// takes time in proportion to the answers.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/counted_bytes.h"
#include "base/result.h"
#include "batches/batch_options.h"
#include "batches/data_folder.h"
#include "batches/files.h"
#include "batches/objects.h"

namespace tandem::batches {

struct Results {
  CountedBytes space;                // of both files, until their rows count
  std::optional<FileObject> output;  // contents are on the disk, rows are not written; absent: none
  std::optional<FileObject> errors;
  LineCounts counts;
  int64_t unanswered = 0;  // lines without an answer
};

// The code of lines without an answer that get an error in their place.
inline constexpr std::string_view kBatchExpired = "batch_expired";
// The code of a batch whose files cannot be read, and whose window has ended.
inline constexpr std::string_view kFilesUnreadable = "files_unreadable";

// `batch` in state kFinalizing: lines without an answer are errors of code kBatchExpired.
// kCancelling: they are left out. What is written counts as used space of `files`. After an error
// neither file is there; kUnavailable: should_stop() said so.
[[nodiscard]] Result<Results> write_results(const BatchObject& batch, const DataFolder& folder,
                                            Files& files, const std::function<bool()>& should_stop);

}  // namespace tandem::batches
