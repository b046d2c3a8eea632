// Rows of the database as objects. Threads: those of the statement.
#pragma once

#include <string_view>

#include "base/result.h"
#include "batches/database.h"
#include "batches/objects.h"

namespace tandem::batches {

// Columns in the order in which file_of() and batch_of() read them.
inline constexpr std::string_view kFileColumns =
    "id, owner, filename, purpose, bytes, created_at, expires_at";
inline constexpr std::string_view kBatchColumns =
    "id, owner, endpoint, input_file_id, completion_window, metadata, output_expires_after, "
    "input_bytes, created_at, expires_at, status, total, completed, failed, faults, "
    "output_file_id, error_file_id, in_progress_at, finalizing_at, cancelling_at, ended_at, models";

inline constexpr std::string_view kUnfinished =
    "status IN ('validating', 'in_progress', 'finalizing', 'cancelling')";

// The first column of the only row; 0 without a row.
Result<int64_t> number_of(const Database& database, std::string_view sql);

// An error: Tandem has not written this row.
Result<FileObject> file_of(const Statement& row);
Result<BatchObject> batch_of(const Statement& row);

}  // namespace tandem::batches
