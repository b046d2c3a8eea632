// The rows of files and batches, in one database of a DataFolder. A change is on the disk when the
// call returns. Objects belong to their owner: what another one asks for does not exist. Order is
// that of creation, whatever the clock did. Threads: any; calls wait for each other and for the
// disk, so they do not belong on an I/O thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "batches/data_folder.h"
#include "batches/database.h"
#include "batches/objects.h"

namespace tandem::batches {

// Which part of a list: at most `limit` objects behind the object `after`, which may have been
// deleted a while ago.
struct ListRange {
  std::string after;  // empty: from the beginning
  int64_t limit = 20;
  bool oldest_first = false;
  std::string purpose;  // of files; empty: any
};

template <class Object>
struct ListPage {
  std::vector<Object> objects;
  bool has_more = false;
};

class Store {
 public:
  // Opens the folder's database, or makes it, brings an older version up to date, and removes
  // contents that no row names: what a kill left behind. Errors name the file: it is damaged, or of
  // a later version. `now`: seconds since 1970, for files that expire; absent: none has expired.
  static Result<std::unique_ptr<Store>> open(const DataFolder& folder,
                                             std::function<int64_t()> now = {});

  Status add_file(const FileObject& file);
  // kNotFound where the owner has no such object.
  Result<FileObject> file(std::string_view owner, std::string_view id);
  Result<ListPage<FileObject>> files(std::string_view owner, const ListRange& range);
  // How many files the owner has uploaded.
  Result<int64_t> uploads_of(std::string_view owner);
  // Removes the row, then the contents, for which no other call waits.
  Status remove_file(std::string_view owner, std::string_view id);

  Status add_batch(const BatchObject& batch);
  Result<BatchObject> batch(std::string_view owner, std::string_view id);
  Result<ListPage<BatchObject>> batches(std::string_view owner, const ListRange& range);
  // Of all owners, by the time when they expire. Rows that Tandem has not written are left out here
  // and in lists; the log names them once.
  Result<std::vector<BatchObject>> unfinished();
  Result<int64_t> unfinished_of(std::string_view owner);

  // Writes the batch as it is now, unless it is in another state than `from` meanwhile: false.
  Result<bool> change(const BatchObject& batch, BatchState from);
  // The same, with the files that it has written.
  Result<bool> finish(const BatchObject& batch, BatchState from,
                      const std::vector<FileObject>& files);
  // Only the counts, whatever its state.
  Status keep_counts(std::string_view id, const LineCounts& counts);

  // Removes files that are older than `created_before` or have expired by `now`, and batches that
  // ended before `created_before`. Returns how many files. When should_stop says so, contents stay
  // until the next open().
  Result<int64_t> remove_old(int64_t created_before, int64_t now,
                             const std::function<bool()>& should_stop = {});
  // Of contents: files, and the inputs of running batches whose file is deleted.
  Result<int64_t> stored_bytes();

  // By state; as of the last change that could be counted. Does not wait.
  [[nodiscard]] std::array<int64_t, kBatchStates.size()> batches_by_state() const;

 private:
  Store(const DataFolder& folder, Database database, std::function<int64_t()> now)
      : folder_(folder), now_(std::move(now)), database_(std::move(database)) {}
  Status prepare_tables();
  Status bring_up_to_date(int64_t version);
  [[nodiscard]] Status check_new() const;
  Status remove_strays();
  Status write_file(const FileObject& file);
  Result<bool> write_batch(const BatchObject& batch, BatchState from);
  Status count_states();
  void recount_states();
  template <class Object, class Read>
  Result<ListPage<Object>> read_page(Statement& rows, int64_t limit, const Read& read);
  Status remember_removed(std::string_view id);
  Result<std::vector<std::string>> remove_old_rows(int64_t created_before, int64_t now);
  Result<std::optional<int64_t>> place_of(std::string_view table, std::string_view owner,
                                          std::string_view id);

  const DataFolder& folder_;
  const std::function<int64_t()> now_;
  std::mutex mutex_;  // guards what follows
  Database database_;
  std::unordered_set<std::string> damaged_;  // ids of rows that the log has named
  std::array<std::atomic<int64_t>, kBatchStates.size()> by_state_{};
};

}  // namespace tandem::batches
