// One model in the cache that Hugging Face's tools share, on disk:
//
//   ROOT/models--ORG--NAME/blobs/CHECKSUM             contents of files
//                          blobs/CHECKSUM.incomplete  the beginning of one
//                          snapshots/COMMIT/FILE      links to blobs, relative
//                          refs/REVISION              the commit that a branch or tag had
//                          .tandem/COMMIT             Tandem brought all files of this commit,
//                          .tandem/COMMIT--FILE       or this GGUF file
//   ROOT/.locks/models--ORG--NAME/CHECKSUM.lock       held while a blob is written
//
// A snapshot gets its links when all of its blobs are whole, and a ref names it after that. Other
// tools may leave less. Threads: const and shared; the disk is shared with other processes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/file_list.h"
#include "hub/model_name.h"

namespace tandem::hub {

// An error of the disk: what was done to `path`, and errno.
Error disk_error(std::string_view doing, const std::filesystem::path& path, int cause);

class Cache {
 public:
  // Needs the repository of a parsed ModelName.
  Cache(const std::filesystem::path& root, std::string_view repository);

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] std::filesystem::path blobs() const { return folder_ / "blobs"; }
  [[nodiscard]] std::filesystem::path blob(const std::string& checksum) const;
  [[nodiscard]] std::filesystem::path incomplete(const std::string& checksum) const;
  [[nodiscard]] std::filesystem::path lock(const std::string& checksum) const;
  [[nodiscard]] std::filesystem::path snapshot(const std::string& commit) const;

  // The commit that refs/REVISION names; a commit stands for itself. Nullopt: there is none.
  [[nodiscard]] std::optional<std::string> commit_of(const std::string& revision) const;

  // The revisions that refs name, by their commits.
  [[nodiscard]] std::map<std::string, std::vector<std::string>> refs() const;

  // True: the blob is there with this size. Its content was checked when it was written.
  [[nodiscard]] bool has_blob(const RemoteFile& file) const;
  // True: the snapshot has the file itself instead of a link, as tools make it on file systems
  // without links. Its checksum is computed unless the model or the file is marked.
  [[nodiscard]] bool has_copy(const std::string& commit, const RemoteFile& file,
                              const std::function<bool()>& stop) const;
  // True: mark_complete was called for the commit, and the GGUF file unless that is empty. Another
  // tool may have brought a part alone.
  [[nodiscard]] bool is_complete(const std::string& commit, const std::string& file) const;

  // Makes the folders that downloads write to, and one link to see that links can be made.
  [[nodiscard]] Status make_folders() const;
  // Links snapshots/COMMIT/PATH to the blob, unless it leads there already.
  [[nodiscard]] Status link(const std::string& commit, const RemoteFile& file) const;
  [[nodiscard]] Status write_ref(const std::string& revision, const std::string& commit) const;
  // Of use, but not needed: failures are ignored.
  void mark_complete(const std::string& commit, const std::string& file) const;

 private:
  [[nodiscard]] std::filesystem::path mark(const std::string& commit,
                                           const std::string& file) const;

  std::filesystem::path root_;
  std::filesystem::path folder_;
};

// What a server needs of `snapshot` and is not there, or is a link to nothing: empty if the model
// is whole. With `file` (of a ModelName) its parts, otherwise configuration, tokenizer and weights.
[[nodiscard]] std::vector<std::string> missing_files(const std::filesystem::path& snapshot,
                                                     const std::string& file);

// The files that a text of model.safetensors.index.json names, each once, in order. An error says
// what is wrong with it.
Result<std::vector<std::string>> files_of_index(std::string_view text);
Result<std::vector<std::string>> read_index(const std::filesystem::path& path);

// True: flock failed with `cause` because the file system has no locks.
[[nodiscard]] bool has_no_locks(int cause);

// Held until it goes out of scope; other processes wait. `stop` is asked while waiting, and
// `on_note` called with a few words if another process holds the lock, or if the file system has no
// locks and none is held.
class FileLock {
 public:
  static Result<FileLock> take(const std::filesystem::path& path, const std::function<bool()>& stop,
                               const std::function<void(std::string_view)>& on_note);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

// The error of what was stopped by its user.
Error stopped_error();

// A model of the cache as `tandem list` shows it: one for each snapshot.
struct CachedModel {
  std::string repository;
  std::string commit;
  std::vector<std::string> revisions;  // refs that name the commit
  std::filesystem::path path;          // of the snapshot
  std::vector<std::string> gguf;       // its GGUF files; the first part of a split file
  bool is_gguf = false;                // a GGUF file is the model: there are no other weights
  int64_t bytes = 0;                   // of files that are there
  int64_t incomplete_bytes = 0;        // of the repository's unfinished downloads
  std::vector<std::string> missing;    // see missing_files; empty: whole
};

// All models below `root`, by name and commit. A root that is not there holds none. Repositories
// whose first download has not ended yet come with an empty commit.
std::vector<CachedModel> list_models(const std::filesystem::path& root);

}  // namespace tandem::hub
