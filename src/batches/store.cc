#include "batches/store.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "batches/objects_json.h"
#include "batches/store_rows.h"

namespace tandem::batches {

namespace {

Error absent(std::string_view kind, std::string_view id) {
  return {ErrorCode::kNotFound,
          fmt::format("there is no {} '{}'; it was deleted, or belongs to another API key", kind,
                      shown(id)),
          ""};
}

}  // namespace

// One damaged row must not hide the others, nor stop the batches of other keys.
template <class Object, class Read>
Result<ListPage<Object>> Store::read_page(Statement& rows, int64_t limit, const Read& read) {
  constexpr size_t kMaxNamed = 1000;
  ListPage<Object> page;
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, rows.step());
    if (!row) {
      return page;
    }
    if (std::ssize(page.objects) == limit) {
      page.has_more = true;
      return page;
    }
    Result<Object> object = read(rows);
    if (object.ok()) {
      page.objects.push_back(*std::move(object));
    } else if (damaged_.size() < kMaxNamed && damaged_.insert(rows.text(0)).second) {
      log::error("{}: '{}' is left out", object.error().message, shown(rows.text(0)));
    }
  }
}

Status Store::count_states() {
  std::array<int64_t, kBatchStates.size()> counts{};
  ASSIGN_OR_RETURN(Statement rows,
                   database_.prepare("SELECT status, count(*) FROM batches GROUP BY status"));
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, rows.step());
    if (!row) {
      break;
    }
    if (const std::optional<BatchState> state = parse_state(rows.text(0))) {
      counts[static_cast<size_t>(*state)] = rows.integer(1);
    }
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    by_state_[i] = counts[i];
  }
  return {};
}

// After a change that is on the disk: whether it can be counted now does not undo it.
void Store::recount_states() {
  if (const Status counted = count_states(); !counted.ok()) {
    log::warn("batches were not counted by state: {}", counted.error().message);
  }
}

std::array<int64_t, kBatchStates.size()> Store::batches_by_state() const {
  std::array<int64_t, kBatchStates.size()> counts{};
  for (size_t i = 0; i < counts.size(); ++i) {
    counts[i] = by_state_[i];
  }
  return counts;
}

Status Store::write_file(const FileObject& file) {
  ASSIGN_OR_RETURN(Statement statement,
                   database_.prepare(fmt::format("INSERT INTO files ({}) VALUES "
                                                 "(?, ?, ?, ?, ?, ?, ?)",
                                                 kFileColumns)));
  statement.bind(std::string_view(file.id)).bind(std::string_view(file.owner));
  statement.bind(std::string_view(file.filename)).bind(std::string_view(file.purpose));
  statement.bind(file.bytes).bind(file.created_at).bind(file.expires_at);
  return statement.run();
}

Status Store::add_file(const FileObject& file) {
  const std::scoped_lock lock(mutex_);
  return write_file(file);
}

Result<FileObject> Store::file(std::string_view owner, std::string_view id) {
  const std::scoped_lock lock(mutex_);
  ASSIGN_OR_RETURN(Statement row,
                   database_.prepare(fmt::format("SELECT {} FROM files WHERE id = ? AND owner = ? "
                                                 "AND (expires_at IS NULL OR expires_at > ?)",
                                                 kFileColumns)));
  row.bind(id).bind(owner).bind(now_ ? now_() : 0);
  ASSIGN_OR_RETURN(const bool found, row.step());
  if (!found) {
    return absent("file", id);
  }
  return file_of(row);
}

Result<std::optional<int64_t>> Store::place_of(std::string_view table, std::string_view owner,
                                               std::string_view id) {
  if (id.empty()) {
    return std::optional<int64_t>();
  }
  ASSIGN_OR_RETURN(Statement row, database_.prepare(fmt::format(
                                      "SELECT place FROM {} WHERE id = ?1 AND owner = ?2 UNION ALL "
                                      "SELECT place FROM removed WHERE id = ?1 AND owner = ?2",
                                      table)));
  row.bind(id).bind(owner);
  ASSIGN_OR_RETURN(const bool found, row.step());
  if (!found) {
    return invalid_argument(
        fmt::format("'after' names '{}', which is not in this list; begin without it", shown(id)),
        "after");
  }
  return std::optional(row.integer(0));
}

Result<ListPage<FileObject>> Store::files(std::string_view owner, const ListRange& range) {
  const std::scoped_lock lock(mutex_);
  ASSIGN_OR_RETURN(const std::optional<int64_t> place, place_of("files", owner, range.after));
  ASSIGN_OR_RETURN(Statement rows, database_.prepare(fmt::format(
                                       "SELECT {0} FROM files WHERE owner = ?1 AND (?2 IS NULL OR "
                                       "place {1} ?2) AND (?3 = '' OR purpose = ?3) AND "
                                       "(expires_at IS NULL OR expires_at > ?5) ORDER BY place {2} "
                                       "LIMIT ?4",
                                       kFileColumns, range.oldest_first ? ">" : "<",
                                       range.oldest_first ? "ASC" : "DESC")));
  rows.bind(owner).bind(place).bind(std::string_view(range.purpose)).bind(range.limit + 1);
  rows.bind(now_ ? now_() : 0);
  return read_page<FileObject>(rows, range.limit, file_of);
}

Result<int64_t> Store::uploads_of(std::string_view owner) {
  const std::scoped_lock lock(mutex_);
  ASSIGN_OR_RETURN(Statement count,
                   database_.prepare("SELECT count(*) FROM files WHERE owner = ? AND purpose = ?"));
  count.bind(owner).bind(kPurposeBatch);
  ASSIGN_OR_RETURN(const bool row, count.step());
  return row ? count.integer(0) : 0;
}

// A list then continues behind a file that was deleted meanwhile. Within a transaction, before the
// row goes.
Status Store::remember_removed(std::string_view id) {
  constexpr int64_t kRemembered = 100'000;
  ASSIGN_OR_RETURN(Statement add,
                   database_.prepare("INSERT OR REPLACE INTO removed (id, owner, place) SELECT id, "
                                     "owner, place FROM files WHERE id = ?"));
  add.bind(id);
  RETURN_IF_ERROR(add.run());
  return database_.run(fmt::format(
      "DELETE FROM removed WHERE number <= (SELECT max(number) FROM removed) - {}", kRemembered));
}

Status Store::remove_file(std::string_view owner, std::string_view id) {
  {
    const std::scoped_lock lock(mutex_);
    ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(database_));
    RETURN_IF_ERROR(remember_removed(id));
    ASSIGN_OR_RETURN(Statement statement,
                     database_.prepare("DELETE FROM files WHERE id = ? AND owner = ?"));
    statement.bind(id).bind(owner);
    RETURN_IF_ERROR(statement.run());
    if (database_.changes() == 0) {
      return absent("file", id);
    }
    RETURN_IF_ERROR(transaction.commit());
  }
  if (is_object_id(id)) {
    folder_.remove_content(id);
  }
  return {};
}

Status Store::add_batch(const BatchObject& batch) {
  const std::scoped_lock lock(mutex_);
  ASSIGN_OR_RETURN(Statement statement,
                   database_.prepare(fmt::format("INSERT INTO batches ({}) VALUES (?, ?, ?, ?, ?, "
                                                 "?, ?, ?, ?, ?, ?, 0, 0, 0, '[]', NULL, NULL, "
                                                 "NULL, NULL, NULL, NULL, '[]')",
                                                 kBatchColumns)));
  statement.bind(std::string_view(batch.id)).bind(std::string_view(batch.owner));
  statement.bind(std::string_view(batch.endpoint)).bind(std::string_view(batch.input_file_id));
  statement.bind(std::string_view(batch.completion_window));
  statement.bind(std::string_view(metadata_json(batch.metadata)));
  statement.bind(batch.output_expires_after).bind(batch.input_bytes);
  statement.bind(batch.created_at).bind(batch.expires_at).bind(state_name(batch.state));
  RETURN_IF_ERROR(statement.run());
  recount_states();
  return {};
}

Result<BatchObject> Store::batch(std::string_view owner, std::string_view id) {
  const std::scoped_lock lock(mutex_);
  ASSIGN_OR_RETURN(Statement row,
                   database_.prepare(fmt::format(
                       "SELECT {} FROM batches WHERE id = ? AND owner = ?", kBatchColumns)));
  row.bind(id).bind(owner);
  ASSIGN_OR_RETURN(const bool found, row.step());
  if (!found) {
    return absent("batch", id);
  }
  return batch_of(row);
}

Result<ListPage<BatchObject>> Store::batches(std::string_view owner, const ListRange& range) {
  const std::scoped_lock lock(mutex_);
  ASSIGN_OR_RETURN(const std::optional<int64_t> place, place_of("batches", owner, range.after));
  ASSIGN_OR_RETURN(
      Statement rows,
      database_.prepare(fmt::format(
          "SELECT {} FROM batches WHERE owner = ?1 AND (?2 IS NULL OR place {} ?2) "
          "ORDER BY place {} LIMIT ?3",
          kBatchColumns, range.oldest_first ? ">" : "<", range.oldest_first ? "ASC" : "DESC")));
  rows.bind(owner).bind(place).bind(range.limit + 1);
  return read_page<BatchObject>(rows, range.limit, batch_of);
}

Result<std::vector<BatchObject>> Store::unfinished() {
  const std::scoped_lock lock(mutex_);
  ASSIGN_OR_RETURN(Statement rows, database_.prepare(fmt::format(
                                       "SELECT {} FROM batches WHERE {} ORDER BY expires_at, place",
                                       kBatchColumns, kUnfinished)));
  ASSIGN_OR_RETURN(ListPage<BatchObject> all, read_page<BatchObject>(rows, INT64_MAX, batch_of));
  return std::move(all.objects);
}

Result<int64_t> Store::unfinished_of(std::string_view owner) {
  const std::scoped_lock lock(mutex_);
  ASSIGN_OR_RETURN(Statement count,
                   database_.prepare(fmt::format(
                       "SELECT count(*) FROM batches WHERE owner = ? AND {}", kUnfinished)));
  count.bind(owner);
  ASSIGN_OR_RETURN(const bool row, count.step());
  return row ? count.integer(0) : 0;
}

Result<bool> Store::write_batch(const BatchObject& batch, BatchState from) {
  ASSIGN_OR_RETURN(
      Statement statement,
      database_.prepare(
          "UPDATE batches SET status = ?, total = ?, completed = ?, failed = ?, faults = ?, "
          "output_file_id = ?, error_file_id = ?, in_progress_at = ?, finalizing_at = ?, "
          "cancelling_at = ?, ended_at = ?, models = ? WHERE id = ? AND status = ?"));
  statement.bind(state_name(batch.state)).bind(batch.counts.total);
  statement.bind(batch.counts.completed).bind(batch.counts.failed);
  statement.bind(std::string_view(faults_json(batch.faults)));
  statement.bind(batch.output_file_id).bind(batch.error_file_id);
  statement.bind(batch.in_progress_at).bind(batch.finalizing_at);
  statement.bind(batch.cancelling_at).bind(batch.ended_at);
  statement.bind(std::string_view(names_json(batch.models)));
  statement.bind(std::string_view(batch.id)).bind(state_name(from));
  RETURN_IF_ERROR(statement.run());
  return database_.changes() == 1;
}

Result<bool> Store::change(const BatchObject& batch, BatchState from) {
  return finish(batch, from, {});
}

Result<bool> Store::finish(const BatchObject& batch, BatchState from,
                           const std::vector<FileObject>& files) {
  const std::scoped_lock lock(mutex_);
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(database_));
  ASSIGN_OR_RETURN(const bool changed, write_batch(batch, from));
  if (!changed) {
    return false;
  }
  for (const FileObject& file : files) {
    RETURN_IF_ERROR(write_file(file));
  }
  RETURN_IF_ERROR(transaction.commit());
  recount_states();
  return true;
}

Status Store::keep_counts(std::string_view id, const LineCounts& counts) {
  const std::scoped_lock lock(mutex_);
  ASSIGN_OR_RETURN(Statement statement,
                   database_.prepare("UPDATE batches SET completed = ?, failed = ? WHERE id = ?"));
  statement.bind(counts.completed).bind(counts.failed).bind(id);
  return statement.run();
}

Result<std::vector<std::string>> Store::remove_old_rows(int64_t created_before, int64_t now) {
  const std::scoped_lock lock(mutex_);
  std::vector<std::string> old;
  ASSIGN_OR_RETURN(Statement rows, database_.prepare("SELECT id FROM files WHERE created_at < ? OR "
                                                     "expires_at <= ?"));
  rows.bind(created_before).bind(now);
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, rows.step());
    if (!row) {
      break;
    }
    old.push_back(rows.text(0));
  }
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(database_));
  for (const std::string& id : old) {
    RETURN_IF_ERROR(remember_removed(id));
    ASSIGN_OR_RETURN(Statement statement, database_.prepare("DELETE FROM files WHERE id = ?"));
    statement.bind(std::string_view(id));
    RETURN_IF_ERROR(statement.run());
  }
  ASSIGN_OR_RETURN(Statement ended, database_.prepare("DELETE FROM batches WHERE ended_at < ?"));
  ended.bind(created_before);
  RETURN_IF_ERROR(ended.run());
  RETURN_IF_ERROR(transaction.commit());
  recount_states();
  return old;
}

Result<int64_t> Store::remove_old(int64_t created_before, int64_t now,
                                  const std::function<bool()>& should_stop) {
  ASSIGN_OR_RETURN(const std::vector<std::string> old, remove_old_rows(created_before, now));
  for (const std::string& id : old) {
    if (should_stop && should_stop()) {
      break;
    }
    if (is_object_id(id)) {
      folder_.remove_content(id);
    }
  }
  return std::ssize(old);
}

// Batches of one file share its bytes on the disk, also after it is deleted.
Result<int64_t> Store::stored_bytes() {
  const std::scoped_lock lock(mutex_);
  return number_of(database_,
                   fmt::format("SELECT (SELECT coalesce(sum(bytes), 0) FROM files) + (SELECT "
                               "coalesce(sum(bytes), 0) FROM (SELECT max(input_bytes) AS bytes "
                               "FROM batches WHERE {} AND input_file_id NOT IN (SELECT id FROM "
                               "files) GROUP BY input_file_id))",
                               kUnfinished));
}

}  // namespace tandem::batches
