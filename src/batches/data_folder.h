// The folder in which the server keeps what must survive it: a database (store.h) and the contents
// of files and batches beside it.
//
//   tandem.db          rows of files and batches
//   lock               held by the server that uses the folder
//   files/ID           contents of a file; ID.part while they are being written
//   batches/ID/input   of a batch that has not ended: its input, whatever becomes of the file
//   batches/ID/work    its answers so far (jobs/batch_output.h)
//
// Contents are written beside, synced, renamed, and their folder synced: a name of a file always
// stands for all of its bytes. Ids come from is_object_id() strings only. Threads: any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::batches {

// Letters, digits, '-' and '_', at most 100 of them: safe as the name of a file.
[[nodiscard]] bool is_object_id(std::string_view id);

class DataFolder {
 public:
  // Whether open() could make or use the folder, apart from its lock: a server may use it now.
  // Makes nothing.
  static Status check(const std::filesystem::path& path);
  // Makes what is missing, readable by this user alone, and locks it. An error names the folder.
  static Result<DataFolder> open(const std::filesystem::path& path);
  ~DataFolder();
  DataFolder(DataFolder&& other) noexcept;
  DataFolder& operator=(DataFolder&&) = delete;

  [[nodiscard]] std::filesystem::path database() const { return path_ / "tandem.db"; }
  [[nodiscard]] std::filesystem::path files() const { return path_ / "files"; }
  [[nodiscard]] std::filesystem::path batches() const { return path_ / "batches"; }
  [[nodiscard]] std::filesystem::path content(std::string_view file_id) const;
  [[nodiscard]] std::filesystem::path unfinished(std::string_view file_id) const;
  [[nodiscard]] std::filesystem::path input(std::string_view batch_id) const;
  [[nodiscard]] std::filesystem::path work(std::string_view batch_id) const;

  // Gives the batch the file's contents as its input: both share the bytes. After an error nothing
  // of the batch is left.
  [[nodiscard]] Status link_input(std::string_view file_id, std::string_view batch_id) const;
  // Absent ones are no error: what is removed stays removed.
  void remove_content(std::string_view file_id) const;
  void remove_batch(std::string_view batch_id) const;
  // Of the disk.
  [[nodiscard]] int64_t free_bytes() const;
  // Of the answers of a batch so far; 0: none.
  [[nodiscard]] int64_t work_bytes(std::string_view batch_id) const;

 private:
  DataFolder(std::filesystem::path path, int lock) : path_(std::move(path)), lock_(lock) {}

  std::filesystem::path path_;
  int lock_;
};

// A file that is being written: append, then publish() under its name. Without it, the file goes
// with the object.
class NewContent {
 public:
  static Result<NewContent> create(const DataFolder& folder, std::string_view file_id);
  ~NewContent();
  NewContent(NewContent&& other) noexcept;
  NewContent& operator=(NewContent&&) = delete;

  [[nodiscard]] Status append(std::string_view bytes);
  // On the disk, whole, under its name, when it returns. After an error there is no such file.
  [[nodiscard]] Status publish();
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  NewContent(const DataFolder& folder, std::string id, int descriptor)
      : folder_(&folder), id_(std::move(id)), descriptor_(descriptor) {}

  const DataFolder* folder_;
  std::string id_;
  int descriptor_;  // -1: published or moved from
  int64_t bytes_ = 0;
};

// A file's contents, piece by piece. What is open stays readable when the file is deleted.
class ContentReader {
 public:
  static Result<ContentReader> open(const std::filesystem::path& path);
  ~ContentReader();
  ContentReader(ContentReader&& other) noexcept;
  ContentReader& operator=(ContentReader&&) = delete;

  [[nodiscard]] int64_t bytes() const { return bytes_; }
  // The next bytes, at most `max`; empty: the end.
  [[nodiscard]] Result<std::string> next(size_t max);

 private:
  ContentReader(int descriptor, int64_t bytes) : descriptor_(descriptor), bytes_(bytes) {}
  int descriptor_;
  int64_t bytes_;
};

}  // namespace tandem::batches
