#include "hub/download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "base/units.h"
#include "hub/checksum.h"

namespace tandem::hub {
namespace {

constexpr int kRangeNotSatisfiable = 416;

// The file under its unfinished name. Each byte is written at its own offset. On a file system
// without locks two processes may write the file at a time: they write the same bytes at the same
// offsets, and finish() succeeds for both.
class PartialFile final : public AnswerReceiver {
 public:
  PartialFile(const RemoteFile& file, const std::string& commit, std::filesystem::path path,
              const ClientHooks& hooks)
      : file_(file),
        commit_(commit),
        path_(std::move(path)),
        hooks_(hooks),
        checksum_(file.checksum, *file.size) {}
  ~PartialFile() override {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  // Takes over what an earlier run left.
  Status open() {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor_ < 0) {
      return disk_error("open", path_, errno);
    }
    struct stat info {};
    if (::fstat(descriptor_, &info) != 0) {
      return disk_error("read", path_, errno);
    }
    if (info.st_size > *file_.size) {
      return discard();
    }
    std::vector<char> buffer(size_t{1} << 20);
    while (have_ < info.st_size && !hooks_.stop()) {
      const ssize_t bytes = ::pread(descriptor_, buffer.data(), buffer.size(), have_);
      if (bytes <= 0) {
        return disk_error("read", path_, bytes < 0 ? errno : EIO);
      }
      add({buffer.data(), static_cast<size_t>(bytes)});
    }
    return {};
  }

  // Nothing of it is of use.
  Status discard() {
    hooks_.on_bytes(-have_);
    have_ = 0;
    checksum_.restart();
    // Not ftruncate: another process may have renamed the file to its final name.
    ::close(descriptor_);
    ::unlink(path_.c_str());
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return descriptor_ < 0 ? Status(disk_error("make", path_, errno)) : Status();
  }

  Status begin(const HttpHead& head, const FileFacts& facts) override {
    if ((!facts.commit.empty() && facts.commit != commit_) ||
        (!facts.checksum.empty() && facts.checksum != file_.checksum)) {
      return Error{ErrorCode::kIo,
                   fmt::format("'{}' is another file than the hub listed a moment ago: the model "
                               "changed, or a mirror is out of date; run the same command again",
                               file_.path),
                   {}};
    }
    if (facts.size && *facts.size != *file_.size) {
      return wrong_size(*facts.size);
    }
    if (head.status == kHttpOk) {
      const std::string_view length = head.header("content-length");
      int64_t bytes = 0;
      const auto [end, code] = std::from_chars(length.data(), length.data() + length.size(), bytes);
      if (!length.empty() && code == std::errc() && bytes != *file_.size) {
        return wrong_size(bytes);
      }
      return have_ > 0 ? discard() : Status{};  // it sends all of the file, not the rest
    }
    // "bytes 100-199/200"
    const std::string wanted = fmt::format("bytes {}-", have_);
    const std::string_view range = head.header("content-range");
    const bool right_end =
        range.ends_with("/*") || range.ends_with(fmt::format("/{}", *file_.size));
    if (!range.starts_with(wanted) || !right_end) {
      return Error{ErrorCode::kIo,
                   fmt::format("the hub sends another part of '{}' ({}) than was asked for ({}, of "
                               "{} bytes); run the same command again",
                               file_.path, printable(range, kMaxShownBytes), wanted, *file_.size),
                   {}};
    }
    return {};
  }

  Status take(std::string_view bytes) override {
    if (have_ + static_cast<int64_t>(bytes.size()) > *file_.size) {
      return wrong_size(have_ + static_cast<int64_t>(bytes.size()));
    }
    for (size_t written = 0; written < bytes.size();) {
      const ssize_t done = ::pwrite(descriptor_, bytes.data() + written, bytes.size() - written,
                                    have_ + static_cast<int64_t>(written));
      if (done < 0 && errno == EINTR) {
        continue;
      }
      if (done <= 0) {
        // What was written of these bytes is not counted; the next run writes them again.
        return disk_error("write", path_, done < 0 ? errno : ENOSPC);
      }
      written += static_cast<size_t>(done);
    }
    add(bytes);
    return {};
  }

  // Under its final name from here on. Needs is_whole().
  Status finish(const Cache& cache) {
    if (::fsync(descriptor_) != 0) {
      return disk_error("write", path_, errno);
    }
    const std::filesystem::path blob = cache.blob(file_.checksum);
    if (!is_still_named()) {
      return cache.has_blob(file_) ? Status() : taken_away();
    }
    if (::rename(path_.c_str(), blob.c_str()) != 0) {
      const int cause = errno;
      return cause == ENOENT && cache.has_blob(file_) ? Status()
                                                      : disk_error("rename a file to", blob, cause);
    }
    return {};
  }

  [[nodiscard]] int64_t have() const { return have_; }
  [[nodiscard]] bool is_whole() const { return have_ == *file_.size; }
  [[nodiscard]] std::string computed_checksum() { return checksum_.finish(); }

 private:
  void add(std::string_view bytes) {
    checksum_.add(bytes);
    have_ += static_cast<int64_t>(bytes.size());
    hooks_.on_bytes(static_cast<int64_t>(bytes.size()));
  }
  // True: the unfinished name leads to the bytes that were written, and to no more.
  [[nodiscard]] bool is_still_named() const {
    struct stat held {};
    struct stat named {};
    return ::fstat(descriptor_, &held) == 0 && ::stat(path_.c_str(), &named) == 0 &&
           held.st_ino == named.st_ino && held.st_dev == named.st_dev &&
           held.st_size == *file_.size;
  }
  [[nodiscard]] Error taken_away() const {
    return {ErrorCode::kIo,
            fmt::format("another process removed or changed '{}' while it was written; run the "
                        "same command again",
                        path_.string()),
            {}};
  }
  [[nodiscard]] Error wrong_size(int64_t bytes) const {
    return {ErrorCode::kIo,
            fmt::format("'{}' has {} bytes in the hub's list and {}{} in its answer; run the same "
                        "command again, and if that does not help, tell the hub's operator",
                        file_.path, *file_.size, bytes > *file_.size ? "at least " : "", bytes),
            {}};
  }

  const RemoteFile& file_;
  const std::string& commit_;
  std::filesystem::path path_;
  const ClientHooks& hooks_;
  Checksum checksum_;
  int descriptor_ = -1;
  int64_t have_ = 0;
};

// Until all bytes are there.
Status receive(Client& client, const std::string& commit, const RemoteFile& file,
               PartialFile& partial) {
  Attempts attempts(client.options());
  bool range_refused = false;
  while (!partial.is_whole()) {
    const int64_t before = partial.have();
    int status = 0;
    std::optional<Refusal> refusal = client.get_file(commit, file, before, partial, status);
    if (client.hooks().stop()) {
      return stopped_error();
    }
    if (partial.is_whole()) {
      break;
    }
    if (status == kRangeNotSatisfiable && before > 0 && !range_refused) {
      range_refused = true;
      RETURN_IF_ERROR(partial.discard());
      continue;
    }
    if (!refusal) {
      refusal = Refusal{.error = {ErrorCode::kUnavailable,
                                  fmt::format("'{}' ended after {} of {} bytes", file.path,
                                              partial.have(), *file.size),
                                  {}},
                        .retry = true,
                        .retry_after = {},
                        .cause = "it ended too early"};
    }
    const auto wait = attempts.next_pause(*refusal, partial.have() > before);
    if (!wait) {
      Error error = refusal->error;
      if (refusal->retry) {
        error.message +=
            fmt::format(". {} of {} of '{}' are kept: the same command goes on there",
                        format_bytes(partial.have()), format_bytes(*file.size), file.path);
      }
      return error;
    }
    client.hooks().on_note(fmt::format("{}: {}; going on after {} in {}", file.path, refusal->cause,
                                       format_bytes(partial.have()), format_duration(*wait)));
    if (!client.pause(*wait)) {
      return stopped_error();
    }
  }
  return {};
}

}  // namespace

Status download(Client& client, const Cache& cache, const std::string& commit,
                const RemoteFile& file) {
  if (cache.has_blob(file)) {
    client.hooks().on_bytes(*file.size);
    return {};
  }
  ASSIGN_OR_RETURN(
      const FileLock lock,
      FileLock::take(cache.lock(file.checksum), client.hooks().stop, [&](std::string_view words) {
        client.hooks().on_note(fmt::format("{}: {}", file.path, words));
      }));
  if (cache.has_blob(file)) {
    client.hooks().on_bytes(*file.size);
    return {};
  }
  PartialFile partial(file, commit, cache.incomplete(file.checksum), client.hooks());
  RETURN_IF_ERROR(partial.open());
  const bool resumed = partial.have() > 0;
  RETURN_IF_ERROR(receive(client, commit, file, partial));
  std::string found = partial.computed_checksum();
  if (found != file.checksum && resumed) {
    // The bytes from an earlier run were wrong: once more from the start.
    client.hooks().on_note(
        fmt::format("{}: what was there of it has another checksum; starting again", file.path));
    RETURN_IF_ERROR(partial.discard());
    RETURN_IF_ERROR(receive(client, commit, file, partial));
    found = partial.computed_checksum();
  }
  if (found != file.checksum) {
    RETURN_IF_ERROR(partial.discard());
    return Error{ErrorCode::kIo,
                 fmt::format("'{}' arrived with the checksum {}, but the hub lists {}: it was "
                             "damaged on its way or changed at the hub; run the same command again",
                             file.path, found, file.checksum),
                 {}};
  }
  return partial.finish(cache);
}

}  // namespace tandem::hub
