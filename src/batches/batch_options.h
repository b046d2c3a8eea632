// What the store of files and batches can be told, each default written here once.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>

#include "base/clock.h"
#include "options/option_descriptor.h"

namespace tandem::batches {

struct BatchOptions {
  std::filesystem::path data_folder;            // empty: no files and no batches
  int64_t storage_bytes = int64_t{10} << 30;    // of all files together
  int64_t file_bytes = 200'000'000;             // of an upload
  int64_t files_of_key = 10'000;                // uploads that a key may have
  int32_t file_lines = 50'000;                  // of a batch
  int64_t line_bytes = int64_t{32} << 20;       // of one of its lines
  int64_t answer_bytes = int64_t{64} << 20;     // of a line, while it is being made
  int64_t answers_bytes = int64_t{512} << 20;   // of all lines
  Nanos keep = std::chrono::hours(30 * 24);     // files and ended batches are removed after it
  int32_t batches_at_once = 4;                  // others wait their turn
  Nanos turn = std::chrono::minutes(1);         // of a batch, where another key has none
  Nanos sweep_every = std::chrono::hours(1);    // looks for what is old
  Nanos retry_after = std::chrono::seconds(5);  // of a batch that cannot go on now
  Nanos keep_counts_every = std::chrono::seconds(2);  // in the database, of a running batch
  int64_t min_free_bytes = int64_t{64} << 20;         // of the disk, left to others
};

// `options` must outlive the table.
OptionTable batch_option_table(BatchOptions& options);

}  // namespace tandem::batches
