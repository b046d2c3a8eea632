#include "batches/data_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace tandem::batches {

namespace fs = std::filesystem;

namespace {

constexpr mode_t kPrivateFolder = 0700;
constexpr mode_t kPrivateFile = 0600;

std::string_view cure_of(int cause) {
  switch (cause) {
    case ENOSPC:
    case EDQUOT:
      return "; free some space on the disk of --data-folder";
    case EFBIG:
      return "; raise the limit on the size of files (ulimit -f)";
    default:
      return "";
  }
}

Error disk_error(std::string_view doing, const fs::path& path, int cause) {
  const std::string_view cure = cure_of(cause);
  return {cure.empty() ? ErrorCode::kIo : ErrorCode::kResourceExhausted,
          fmt::format("cannot {} '{}': {}{}", doing, path.string(), std::strerror(cause), cure),
          "data-folder"};
}

// A file's name lives in its folder, which has to reach the disk, too.
Status sync_names(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    return disk_error("open", folder, errno);
  }
  const bool synced = ::fsync(descriptor) == 0;
  const int cause = errno;
  ::close(descriptor);
  if (!synced) {
    return disk_error("sync", folder, cause);
  }
  return {};
}

Status make_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), kPrivateFolder) != 0 && errno != EEXIST) {
    return disk_error("make the folder", path, errno);
  }
  return {};
}

// An error about `path` unless this user may use `existing` as `mode` of access(2) says.
Status check_access(std::string_view doing, const fs::path& path, const fs::path& existing,
                    int mode) {
  if (::access(existing.c_str(), mode) != 0) {
    return disk_error(doing, path, errno);
  }
  return {};
}

}  // namespace

bool is_object_id(std::string_view id) {
  constexpr size_t kMaxLetters = 100;
  return !id.empty() && id.size() <= kMaxLetters && std::ranges::all_of(id, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  });
}

Status DataFolder::check(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno != ENOENT || ::lstat(path.c_str(), &info) == 0) {  // or a link to no folder
      return disk_error("use the folder", path, errno == 0 ? ENOENT : errno);
    }
    const fs::path parent = (path / "").parent_path().parent_path();  // also if it ends with '/'
    return check_access("make the folder", path, parent.empty() ? "." : parent, W_OK | X_OK);
  }
  if (!S_ISDIR(info.st_mode)) {
    return disk_error("use the folder", path, ENOTDIR);
  }
  RETURN_IF_ERROR(check_access("use the folder", path, path, R_OK | W_OK | X_OK));
  for (const fs::path& file : {path / "lock", path / "tandem.db"}) {
    if (std::error_code ignored; fs::exists(file, ignored)) {
      RETURN_IF_ERROR(check_access("open", file, file, R_OK | W_OK));
    }
  }
  return {};
}

Result<DataFolder> DataFolder::open(const fs::path& path) {
  RETURN_IF_ERROR(make_folder(path));
  const fs::path lock_path = path / "lock";
  const int lock = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kPrivateFile);
  if (lock < 0) {
    return disk_error("open", lock_path, errno);
  }
  DataFolder folder(path, lock);
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    return invalid_argument(
        fmt::format("--data-folder: another server uses '{}'; stop it, or name another folder",
                    path.string()),
        "data-folder");
  }
  RETURN_IF_ERROR(make_folder(folder.files()));
  RETURN_IF_ERROR(make_folder(folder.batches()));
  // Before the database makes it: an empty file is a new database, and this one is private.
  const int made = ::open(folder.database().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kPrivateFile);
  if (made < 0) {
    return disk_error("open", folder.database(), errno);
  }
  ::close(made);
  RETURN_IF_ERROR(sync_names(path));
  return folder;
}

DataFolder::DataFolder(DataFolder&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}

DataFolder::~DataFolder() {
  if (lock_ >= 0) {
    ::close(lock_);
  }
}

fs::path DataFolder::content(std::string_view file_id) const {
  CHECK(is_object_id(file_id), "'{}' names no file", file_id);
  return files() / file_id;
}

fs::path DataFolder::unfinished(std::string_view file_id) const {
  return files() / (content(file_id).filename().string() + ".part");
}

fs::path DataFolder::input(std::string_view batch_id) const {
  CHECK(is_object_id(batch_id), "'{}' names no batch", batch_id);
  return batches() / batch_id / "input";
}

fs::path DataFolder::work(std::string_view batch_id) const {
  return input(batch_id).parent_path() / "work";
}

Status DataFolder::link_input(std::string_view file_id, std::string_view batch_id) const {
  const fs::path to = input(batch_id);
  RETURN_IF_ERROR(make_folder(to.parent_path()));
  if (::link(content(file_id).c_str(), to.c_str()) != 0) {
    const int cause = errno;
    remove_batch(batch_id);
    return disk_error("link the input of a batch", to, cause);
  }
  Status synced = sync_names(to.parent_path());
  if (synced.ok()) {
    synced = sync_names(batches());
  }
  if (!synced.ok()) {
    remove_batch(batch_id);
  }
  return synced;
}

void DataFolder::remove_content(std::string_view file_id) const {
  std::error_code ignored;
  fs::remove(content(file_id), ignored);
}

void DataFolder::remove_batch(std::string_view batch_id) const {
  std::error_code ignored;
  fs::remove_all(input(batch_id).parent_path(), ignored);
}

int64_t DataFolder::free_bytes() const {
  struct statvfs state {};
  if (::statvfs(path_.c_str(), &state) != 0) {
    return 0;
  }
  return static_cast<int64_t>(state.f_bavail) * static_cast<int64_t>(state.f_frsize);
}

int64_t DataFolder::work_bytes(std::string_view batch_id) const {
  std::error_code error;
  const auto bytes = fs::file_size(work(batch_id), error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

Result<NewContent> NewContent::create(const DataFolder& folder, std::string_view file_id) {
  const fs::path path = folder.unfinished(file_id);
  const int descriptor =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kPrivateFile);
  if (descriptor < 0) {
    return disk_error("create", path, errno);
  }
  return NewContent(folder, std::string(file_id), descriptor);
}

NewContent::NewContent(NewContent&& other) noexcept
    : folder_(other.folder_),
      id_(std::move(other.id_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_) {}

NewContent::~NewContent() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
    ::unlink(folder_->unfinished(id_).c_str());
  }
}

Status NewContent::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(descriptor_, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) {
      continue;
    }
    if (wrote < 0) {
      return disk_error("write", folder_->unfinished(id_), errno);
    }
    bytes_ += wrote;
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return {};
}

Status NewContent::publish() {
  const fs::path from = folder_->unfinished(id_);
  if (::fsync(descriptor_) != 0) {
    return disk_error("sync", from, errno);
  }
  if (::rename(from.c_str(), folder_->content(id_).c_str()) != 0) {
    return disk_error("rename", from, errno);
  }
  ::close(std::exchange(descriptor_, -1));
  Status synced = sync_names(folder_->files());
  if (!synced.ok()) {
    folder_->remove_content(id_);
  }
  return synced;
}

Result<ContentReader> ContentReader::open(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return disk_error("open", path, errno);
  }
  ContentReader reader(descriptor, 0);
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) {
    return disk_error("read", path, errno);
  }
  reader.bytes_ = info.st_size;
  return reader;
}

ContentReader::ContentReader(ContentReader&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), bytes_(other.bytes_) {}

ContentReader::~ContentReader() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

Result<std::string> ContentReader::next(size_t max) {
  std::string piece(max, '\0');
  ssize_t got = 0;
  do {
    got = ::read(descriptor_, piece.data(), piece.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    return Error{ErrorCode::kIo, fmt::format("cannot read a file: {}", std::strerror(errno)), ""};
  }
  piece.resize(static_cast<size_t>(got));
  return piece;
}

}  // namespace tandem::batches
