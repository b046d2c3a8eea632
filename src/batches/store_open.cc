// How a store opens: its tables, their versions, and strays after a kill.
#include <fmt/format.h>

#include <unordered_set>
#include <utility>

#include "base/log.h"
#include "batches/store.h"
#include "batches/store_rows.h"

namespace tandem::batches {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kApplication = 0x544E444D;  // "TNDM", in the head of the database's file
constexpr int64_t kVersion = 2;               // of the tables

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

// Version 2: the models of a batch, and the places of deleted files in their lists.
constexpr const char* kSecondVersion = R"(
ALTER TABLE batches ADD COLUMN models TEXT NOT NULL DEFAULT '[]';
CREATE TABLE removed (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, place INTEGER NOT NULL);
)";

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

Result<std::unique_ptr<Store>> Store::open(const DataFolder& folder, std::function<int64_t()> now) {
  ASSIGN_OR_RETURN(Database database, Database::open(folder.database()));
  std::unique_ptr<Store> store(new Store(folder, std::move(database), std::move(now)));
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
    RETURN_IF_ERROR(database_.run(kSecondVersion));
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
  if (version < 1 || version > kVersion) {
    return invalid_argument(
        fmt::format("the database '{}' has version {}, and this build of Tandem reads up to {}; "
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
  return bring_up_to_date(version);
}

Status Store::bring_up_to_date(int64_t version) {
  if (version == kVersion) {
    return {};
  }
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(database_));
  RETURN_IF_ERROR(database_.run(kSecondVersion));
  RETURN_IF_ERROR(database_.run(fmt::format("PRAGMA user_version = {}", kVersion)));
  RETURN_IF_ERROR(transaction.commit());
  log::info("the database '{}' has version {} now; it had {}", folder_.database().string(),
            kVersion, version);
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

}  // namespace tandem::batches
