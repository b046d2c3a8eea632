#include "batches/store.h"

#include <fmt/format.h>

#include <unordered_set>
#include <utility>

#include "batches/objects_json.h"

namespace tandem::batches {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kApplication = 0x544E444D;  // "TNDM", in the head of the database's file
constexpr int64_t kVersion = 1;               // of the tables

constexpr const char* kTables = R"(
CREATE TABLE files (
  place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,
  filename TEXT NOT NULL, purpose TEXT NOT NULL, bytes INTEGER NOT NULL,
  created_at INTEGER NOT NULL, expires_at INTEGER);
CREATE INDEX files_of ON files (owner, place);
CREATE TABLE batches (
  place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,
  endpoint TEXT NOT NULL, input_file_id TEXT NOT NULL, completion_window TEXT NOT NULL,
  metadata TEXT NOT NULL, output_expires_after INTEGER, input_bytes INTEGER NOT NULL,
  created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,
  status TEXT NOT NULL, total INTEGER NOT NULL, completed INTEGER NOT NULL,
  failed INTEGER NOT NULL, faults TEXT NOT NULL, output_file_id TEXT, error_file_id TEXT,
  in_progress_at INTEGER, finalizing_at INTEGER, cancelling_at INTEGER, ended_at INTEGER);
CREATE INDEX batches_of ON batches (owner, place);
CREATE INDEX batches_by_status ON batches (status);
)";

constexpr std::string_view kFileColumns =
    "id, owner, filename, purpose, bytes, created_at, expires_at";
constexpr std::string_view kBatchColumns =
    "id, owner, endpoint, input_file_id, completion_window, metadata, output_expires_after, "
    "input_bytes, created_at, expires_at, status, total, completed, failed, faults, "
    "output_file_id, error_file_id, in_progress_at, finalizing_at, cancelling_at, ended_at";
constexpr std::string_view kUnfinished =
    "status IN ('validating', 'in_progress', 'finalizing', 'cancelling')";

Error damaged_row(std::string_view what) {
  return {ErrorCode::kIo,
          fmt::format("the database of --data-folder holds a row that Tandem did not write ({}); "
                      "restore it from a copy",
                      what),
          "data-folder"};
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

Error absent(std::string_view kind, std::string_view id) {
  return {
      ErrorCode::kNotFound,
      fmt::format("there is no {} '{}'; it was deleted, or belongs to another API key", kind, id),
      ""};
}

template <class Object, class Read>
Result<ListPage<Object>> read_page(Statement& rows, int64_t limit, const Read& read) {
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
    ASSIGN_OR_RETURN(Object object, read(rows));
    page.objects.push_back(std::move(object));
  }
}

Result<int64_t> number_of(const Database& database, std::string_view sql) {
  ASSIGN_OR_RETURN(Statement statement, database.prepare(sql));
  ASSIGN_OR_RETURN(const bool row, statement.step());
  return row ? statement.integer(0) : 0;
}

Result<std::unordered_set<std::string>> texts_of(const Database& database, std::string_view sql) {
  std::unordered_set<std::string> texts;
  ASSIGN_OR_RETURN(Statement statement, database.prepare(sql));
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, statement.step());
    if (!row) {
      return texts;
    }
    texts.insert(statement.text(0));
  }
}

// What a data folder's subfolder holds of files and batches. Other things there are not ours.
Result<std::vector<std::string>> own_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    std::string name = at->path().filename().string();
    if (name.starts_with("file-") || name.starts_with("batch_")) {
      names.push_back(std::move(name));
    }
  }
  if (error) {
    return Error{ErrorCode::kIo,
                 fmt::format("cannot read the folder '{}': {}", folder.string(), error.message()),
                 "data-folder"};
  }
  return names;
}

}  // namespace

Result<std::unique_ptr<Store>> Store::open(const DataFolder& folder) {
  ASSIGN_OR_RETURN(Database database, Database::open(folder.database()));
  std::unique_ptr<Store> store(new Store(folder, std::move(database)));
  RETURN_IF_ERROR(store->prepare_tables());
  RETURN_IF_ERROR(store->remove_strays());
  RETURN_IF_ERROR(store->count_states());
  return store;
}

Status Store::prepare_tables() {
  ASSIGN_OR_RETURN(const int64_t application, number_of(database_, "PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t version, number_of(database_, "PRAGMA user_version"));
  ASSIGN_OR_RETURN(const int64_t tables,
                   number_of(database_, "SELECT count(*) FROM sqlite_master"));
  if (application == 0 && version == 0 && tables == 0) {
    RETURN_IF_ERROR(check_new());
    ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(database_));
    RETURN_IF_ERROR(database_.run(kTables));
    RETURN_IF_ERROR(database_.run(fmt::format("PRAGMA application_id = {}", kApplication)));
    RETURN_IF_ERROR(database_.run(fmt::format("PRAGMA user_version = {}", kVersion)));
    return transaction.commit();
  }
  const std::string path = folder_.database().string();
  if (application != kApplication) {
    return invalid_argument(
        fmt::format("'{}' is the database of another program; name another --data-folder", path),
        "data-folder");
  }
  if (version != kVersion) {
    return invalid_argument(
        fmt::format("the database '{}' has version {}, and this build of Tandem reads version {}; "
                    "use the build that wrote it, or name another --data-folder",
                    path, version, kVersion),
        "data-folder");
  }
  ASSIGN_OR_RETURN(Statement check, database_.prepare("PRAGMA quick_check(1)"));
  ASSIGN_OR_RETURN(const bool row, check.step());
  if (!row || check.text(0) != "ok") {
    return Error{ErrorCode::kIo,
                 fmt::format("the database '{}' is damaged ({}); restore it from a copy, or begin "
                             "without files and batches in another --data-folder",
                             path, row ? check.text(0) : "no answer"),
                 "data-folder"};
  }
  return {};
}

// Without its database, nothing says whose the contents in a folder are: they stay.
Status Store::check_new() const {
  for (const fs::path& in : {folder_.files(), folder_.batches()}) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, own_names(in));
    if (!names.empty()) {
      return invalid_argument(
          fmt::format("'{}' holds files of batches, but there is no database beside it; restore "
                      "'{}' from a copy, or name another --data-folder",
                      in.string(), folder_.database().string()),
          "data-folder");
    }
  }
  return {};
}

Status Store::remove_strays() {
  ASSIGN_OR_RETURN(const auto files, texts_of(database_, "SELECT id FROM files"));
  ASSIGN_OR_RETURN(
      const auto batches,
      texts_of(database_, fmt::format("SELECT id FROM batches WHERE {}", kUnfinished)));
  for (const auto& [in, known] :
       {std::pair(folder_.files(), &files), std::pair(folder_.batches(), &batches)}) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, own_names(in));
    for (const std::string& name : names) {
      if (!known->contains(name)) {
        std::error_code ignored;
        fs::remove_all(in / name, ignored);
      }
    }
  }
  return {};
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
                   database_.prepare(fmt::format("SELECT {} FROM files WHERE id = ? AND owner = ?",
                                                 kFileColumns)));
  row.bind(id).bind(owner);
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
                                      "SELECT place FROM {} WHERE id = ? AND owner = ?", table)));
  row.bind(id).bind(owner);
  ASSIGN_OR_RETURN(const bool found, row.step());
  if (!found) {
    return invalid_argument(
        fmt::format("'after' names '{}', which is not in this list; begin without it", id),
        "after");
  }
  return std::optional(row.integer(0));
}

Result<ListPage<FileObject>> Store::files(std::string_view owner, const ListRange& range) {
  const std::scoped_lock lock(mutex_);
  ASSIGN_OR_RETURN(const std::optional<int64_t> place, place_of("files", owner, range.after));
  ASSIGN_OR_RETURN(Statement rows, database_.prepare(fmt::format(
                                       "SELECT {0} FROM files WHERE owner = ?1 AND (?2 IS NULL OR "
                                       "place {1} ?2) AND (?3 = '' OR purpose = ?3) ORDER BY place "
                                       "{2} LIMIT ?4",
                                       kFileColumns, range.oldest_first ? ">" : "<",
                                       range.oldest_first ? "ASC" : "DESC")));
  rows.bind(owner).bind(place).bind(std::string_view(range.purpose)).bind(range.limit + 1);
  return read_page<FileObject>(rows, range.limit, file_of);
}

Status Store::remove_file(std::string_view owner, std::string_view id) {
  const std::scoped_lock lock(mutex_);
  ASSIGN_OR_RETURN(Statement statement,
                   database_.prepare("DELETE FROM files WHERE id = ? AND owner = ?"));
  statement.bind(id).bind(owner);
  RETURN_IF_ERROR(statement.run());
  if (database_.changes() == 0) {
    return absent("file", id);
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
                                                 "NULL, NULL, NULL, NULL)",
                                                 kBatchColumns)));
  statement.bind(std::string_view(batch.id)).bind(std::string_view(batch.owner));
  statement.bind(std::string_view(batch.endpoint)).bind(std::string_view(batch.input_file_id));
  statement.bind(std::string_view(batch.completion_window));
  statement.bind(std::string_view(metadata_json(batch.metadata)));
  statement.bind(batch.output_expires_after).bind(batch.input_bytes);
  statement.bind(batch.created_at).bind(batch.expires_at).bind(state_name(batch.state));
  RETURN_IF_ERROR(statement.run());
  return count_states();
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
  ASSIGN_OR_RETURN(Statement rows,
                   database_.prepare(fmt::format(
                       "SELECT {} FROM batches WHERE owner = ?1 AND (?2 IS NULL OR place < ?2) "
                       "ORDER BY place DESC LIMIT ?3",
                       kBatchColumns)));
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
          "cancelling_at = ?, ended_at = ? WHERE id = ? AND status = ?"));
  statement.bind(state_name(batch.state)).bind(batch.counts.total);
  statement.bind(batch.counts.completed).bind(batch.counts.failed);
  statement.bind(std::string_view(faults_json(batch.faults)));
  statement.bind(batch.output_file_id).bind(batch.error_file_id);
  statement.bind(batch.in_progress_at).bind(batch.finalizing_at);
  statement.bind(batch.cancelling_at).bind(batch.ended_at);
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
  RETURN_IF_ERROR(count_states());
  return true;
}

Status Store::keep_counts(std::string_view id, const LineCounts& counts) {
  const std::scoped_lock lock(mutex_);
  ASSIGN_OR_RETURN(Statement statement,
                   database_.prepare("UPDATE batches SET completed = ?, failed = ? WHERE id = ?"));
  statement.bind(counts.completed).bind(counts.failed).bind(id);
  return statement.run();
}

Result<int64_t> Store::remove_old(int64_t created_before, int64_t now) {
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
    ASSIGN_OR_RETURN(Statement statement, database_.prepare("DELETE FROM files WHERE id = ?"));
    statement.bind(std::string_view(id));
    RETURN_IF_ERROR(statement.run());
  }
  ASSIGN_OR_RETURN(Statement ended, database_.prepare("DELETE FROM batches WHERE ended_at < ?"));
  ended.bind(created_before);
  RETURN_IF_ERROR(ended.run());
  RETURN_IF_ERROR(transaction.commit());
  for (const std::string& id : old) {
    if (is_object_id(id)) {
      folder_.remove_content(id);
    }
  }
  RETURN_IF_ERROR(count_states());
  return std::ssize(old);
}

Result<int64_t> Store::stored_bytes() {
  const std::scoped_lock lock(mutex_);
  return number_of(database_,
                   fmt::format("SELECT (SELECT coalesce(sum(bytes), 0) FROM files) + (SELECT "
                               "coalesce(sum(input_bytes), 0) FROM batches WHERE {} AND "
                               "input_file_id NOT IN (SELECT id FROM files))",
                               kUnfinished));
}

}  // namespace tandem::batches
