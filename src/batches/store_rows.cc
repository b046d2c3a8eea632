#include "batches/store_rows.h"

#include <fmt/format.h>

#include "batches/data_folder.h"
#include "batches/objects_json.h"

namespace tandem::batches {
namespace {

Error damaged_row(std::string_view what) {
  return {ErrorCode::kIo,
          fmt::format("the database of --data-folder holds a row that Tandem did not write ({}); "
                      "restore it from a copy",
                      what),
          "data-folder"};
}

}  // namespace

Result<int64_t> number_of(const Database& database, std::string_view sql) {
  ASSIGN_OR_RETURN(Statement statement, database.prepare(sql));
  ASSIGN_OR_RETURN(const bool row, statement.step());
  return row ? statement.integer(0) : 0;
}

Result<FileObject> file_of(const Statement& row) {
  FileObject file{.id = row.text(0),
                  .owner = row.text(1),
                  .filename = row.text(2),
                  .purpose = row.text(3),
                  .bytes = row.integer(4),
                  .created_at = row.integer(5),
                  .expires_at = row.optional_integer(6)};
  if (!is_object_id(file.id) || file.bytes < 0) {
    return damaged_row("a file");
  }
  return file;
}

Result<BatchObject> batch_of(const Statement& row) {
  const std::optional<BatchState> state = parse_state(row.text(10));
  BatchObject batch{
      .id = row.text(0),
      .owner = row.text(1),
      .endpoint = row.text(2),
      .input_file_id = row.text(3),
      .completion_window = row.text(4),
      .metadata = parse_metadata(row.text(5)),
      .output_expires_after = row.optional_integer(6),
      .input_bytes = row.integer(7),
      .created_at = row.integer(8),
      .expires_at = row.integer(9),
      .state = state.value_or(BatchState::kFailed),
      .counts = {.total = row.integer(11), .completed = row.integer(12), .failed = row.integer(13)},
      .faults = parse_faults(row.text(14)),
      .models = parse_names(row.text(21)),
      .output_file_id = row.optional_text(15),
      .error_file_id = row.optional_text(16),
      .in_progress_at = row.optional_integer(17),
      .finalizing_at = row.optional_integer(18),
      .cancelling_at = row.optional_integer(19),
      .ended_at = row.optional_integer(20)};
  if (!state || !is_object_id(batch.id)) {
    return damaged_row("a batch");
  }
  return batch;
}

}  // namespace tandem::batches
