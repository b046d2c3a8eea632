#include "jobs/batch_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "openai/batch_line.h"

namespace tandem::jobs {

namespace {

constexpr size_t kOutputPieceBytes = 1 << 20;

// A new file's name lives in its folder, which has to reach the disk, too.
void sync_folder(const std::filesystem::path& file) {
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor >= 0) {
    ::fsync(descriptor);
    ::close(descriptor);
  }
}

}  // namespace

Error BatchOutput::failure(std::string_view doing) const {
  const int cause = errno;
  const bool full = cause == ENOSPC || cause == EDQUOT || cause == EFBIG;
  return {full ? ErrorCode::kResourceExhausted : ErrorCode::kIo,
          fmt::format("cannot {} the batch output '{}': {}", doing, path_.string(),
                      std::strerror(cause)),
          "output"};
}

Result<BatchOutput> BatchOutput::open(const std::filesystem::path& path, const OpenedOutput& how) {
  // O_NONBLOCK: a pipe without a reader must not hang here.
  const int descriptor =
      ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600);
  BatchOutput output(descriptor, path);
  if (descriptor < 0) {
    return output.failure("open");
  }
  struct stat info {};
  if (::fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
    return invalid_argument(
        fmt::format("the batch output '{}' must be a regular file", path.string()), "output");
  }
  RETURN_IF_ERROR(output.lock());
  if (info.st_size == 0) {
    sync_folder(path);
  }
  RETURN_IF_ERROR(output.read_written(how));
  output.synced_bytes_ = output.size_bytes_;
  return output;
}

BatchOutput::BatchOutput(BatchOutput&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      size_bytes_(other.size_bytes_),
      synced_bytes_(other.synced_bytes_),
      written_(std::move(other.written_)) {}

BatchOutput::~BatchOutput() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

Status BatchOutput::lock() {
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) {
    return {};
  }
  if (errno == EWOULDBLOCK) {
    return invalid_argument(
        fmt::format("another run writes to '{}'; wait for it or name another output",
                    path_.string()),
        "output");
  }
  return failure("lock");
}

Status BatchOutput::take_line(std::string_view line, int64_t number) {
  Result<openai::WrittenBatchLine> written = openai::parse_written_batch_line(line);
  if (!written.ok()) {
    return invalid_argument(
        fmt::format("line {} of '{}' {}; the file is left as it is: name another output", number,
                    path_.string(), written.error().message),
        "output");
  }
  if (!written_.hash_by_number.emplace(written->id.number, written->id.hash).second) {
    return invalid_argument(
        fmt::format("line {} of '{}' answers line {} of the batch a second time; the file is left "
                    "as it is: name another output",
                    number, path_.string(), written->id.number),
        "output");
  }
  written_.failed += written->failed ? 1 : 0;
  if (written->custom_id && written->error_code != openai::kDuplicateCustomId) {
    written_.custom_ids.insert(std::move(*written->custom_id));
  }
  return {};
}

// A line with its end. Where it has zeros in it, it is left out and what comes later has to move
// up: it is added to `moved`.
Status BatchOutput::take_or_leave(std::string_view line, int64_t number, const OpenedOutput& how,
                                  std::string& moved) {
  if (line.find('\0') != std::string_view::npos) {
    written_.zeroed_bytes += std::ssize(line);
    return {};
  }
  if (const Status taken = take_line(line.substr(0, line.size() - 1), number); !taken.ok()) {
    if (!how.drops_damage) {
      return taken;
    }
    written_.foreign_bytes += std::ssize(line);
    return {};
  }
  if (written_.zeroed_bytes + written_.foreign_bytes == 0) {
    size_bytes_ += std::ssize(line);
    return {};
  }
  // Only what was written after the last sync can be lost, which is little.
  constexpr size_t kMostMovedBytes = size_t{256} << 20;
  if (moved.size() + line.size() > kMostMovedBytes) {
    return invalid_argument(
        fmt::format("'{}' holds zeros at byte {}, too far from its end for a loss of power: the "
                    "disk may be failing; the file is left as it is: copy it without the lines "
                    "that hold zeros, or name another output",
                    path_.string(), size_bytes_),
        "output");
  }
  moved += line;
  return {};
}

Status BatchOutput::read_written(const OpenedOutput& how) {
  std::string buffer;
  std::string moved;
  int64_t read = 0;  // bytes of whole lines
  int64_t number = 0;
  for (;;) {
    if (how.should_stop && how.should_stop()) {
      return Error{ErrorCode::kUnavailable, "stopped while the batch output was read", ""};
    }
    const size_t had = buffer.size();
    buffer.resize(had + kOutputPieceBytes);
    const ssize_t got = ::pread(descriptor_, buffer.data() + had, kOutputPieceBytes,
                                static_cast<off_t>(read) + static_cast<off_t>(had));
    if (got < 0 && errno == EINTR) {
      buffer.resize(had);
      continue;
    }
    if (got < 0) {
      return failure("read");
    }
    buffer.resize(had + static_cast<size_t>(got));
    if (got == 0) {
      break;
    }
    size_t begin = 0;
    size_t end = buffer.find('\n', had);
    for (; end != std::string::npos; end = buffer.find('\n', begin)) {
      const std::string_view line = std::string_view(buffer).substr(begin, end + 1 - begin);
      RETURN_IF_ERROR(take_or_leave(line, ++number, how, moved));
      begin = end + 1;
    }
    buffer.erase(0, begin);
    read += static_cast<int64_t>(begin);
  }
  return mend(moved, buffer, how);
}

// `torn` has no line end: it was being written when the run was killed.
Status BatchOutput::mend(std::string_view moved, std::string_view torn, const OpenedOutput& how) {
  // Only a file that has whole lines of ours, or the beginning of one, is ours to cut.
  constexpr std::string_view kBegin = R"({"id":"batch_req_)";
  const bool begins = torn.substr(0, kBegin.size()) == kBegin.substr(0, torn.size());
  if (!how.drops_damage && written_.hash_by_number.empty() &&
      (written_.zeroed_bytes > 0 || !begins)) {
    return invalid_argument(
        fmt::format("'{}' is not what `tandem batch run` writes; the file is left as it is: name "
                    "another output",
                    path_.string()),
        "output");
  }
  written_.torn_bytes = std::ssize(torn);
  if (written_.zeroed_bytes + written_.foreign_bytes + written_.torn_bytes == 0) {
    return {};
  }
  if (::ftruncate(descriptor_, static_cast<off_t>(size_bytes_)) != 0) {
    return failure("repair");
  }
  synced_bytes_ = size_bytes_;
  RETURN_IF_ERROR(append(moved));
  return sync();
}

Status BatchOutput::append(std::string_view lines) {
  size_t done = 0;
  while (done < lines.size()) {
    const ssize_t wrote = ::write(descriptor_, lines.data() + done, lines.size() - done);
    if (wrote < 0 && errno == EINTR) {
      continue;
    }
    if (wrote < 0) {
      const Error error = failure("write to");
      // Lines of this call that are whole are kept: they are answers.
      const size_t whole = lines.substr(0, done).rfind('\n') + 1;
      size_bytes_ += static_cast<int64_t>(whole);
      if (::ftruncate(descriptor_, static_cast<off_t>(size_bytes_)) != 0) {
        return Error{error.code, error.message + "; its torn last line is cut by the next run",
                     error.param};
      }
      return error;
    }
    done += static_cast<size_t>(wrote);
  }
  size_bytes_ += static_cast<int64_t>(lines.size());
  return {};
}

Status BatchOutput::sync() {
  if (::fdatasync(descriptor_) != 0) {
    Error error = failure("sync");
    // The system may drop pages that it could not write, and say so only once: the next success
    // would vouch for lines that are not on the disk.
    if (::ftruncate(descriptor_, static_cast<off_t>(synced_bytes_)) != 0) {
      error.message += "; lines that it may not hold could not be taken out";
    } else {
      size_bytes_ = synced_bytes_;
    }
    return error;
  }
  synced_bytes_ = size_bytes_;
  return {};
}

}  // namespace tandem::jobs
