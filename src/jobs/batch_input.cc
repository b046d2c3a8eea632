#include "jobs/batch_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tandem::jobs {

namespace {

constexpr size_t kInputPieceBytes = 256 * 1024;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

Error input_error(const std::filesystem::path& path, std::string_view what) {
  return {ErrorCode::kIo, fmt::format("cannot read the batch '{}': {}", path.string(), what), "IN"};
}

}  // namespace

Result<BatchInput> BatchInput::open(const std::filesystem::path& path, int64_t max_line_bytes) {
  // Not to hang on a pipe without a writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    return input_error(path, std::strerror(errno));
  }
  BatchInput input(descriptor, path, max_line_bytes);
  struct stat info {};
  if (::fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
    return invalid_argument(
        fmt::format("the batch '{}' must be a regular file of lines", path.string()), "IN");
  }
  return input;
}

BatchInput::BatchInput(BatchInput&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      max_line_bytes_(other.max_line_bytes_),
      buffer_(std::move(other.buffer_)),
      position_(other.position_),
      buffer_offset_(other.buffer_offset_),
      begun_(other.begun_),
      ended_(other.ended_),
      number_(other.number_) {}

BatchInput::~BatchInput() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

Status BatchInput::fill() {
  buffer_offset_ += static_cast<int64_t>(position_);
  buffer_.erase(0, std::exchange(position_, 0));
  const size_t had = buffer_.size();
  buffer_.resize(had + kInputPieceBytes);
  ssize_t got = 0;
  do {
    got = ::read(descriptor_, buffer_.data() + had, kInputPieceBytes);
  } while (got < 0 && errno == EINTR);
  buffer_.resize(had + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (got < 0) {
    return input_error(path_, std::strerror(errno));
  }
  ended_ = got == 0;
  if (!std::exchange(begun_, true) && buffer_.starts_with(kByteOrderMark)) {
    position_ = kByteOrderMark.size();
  }
  return {};
}

Result<std::optional<InputLine>> BatchInput::next() {
  const auto limit = static_cast<size_t>(max_line_bytes_);
  InputLine line;
  bool blank = true;
  // A piece of the line, or the rest of it.
  const auto take = [&](size_t end) {
    const std::string_view piece = std::string_view(buffer_).substr(position_, end - position_);
    if (line.place.bytes == 0) {
      line.place.offset = buffer_offset_ + static_cast<int64_t>(position_);
    }
    line.place.bytes += std::ssize(piece);
    blank = blank && piece.find_first_not_of(" \t\r") == std::string_view::npos;
    line.hash = openai::hash_of_line(piece, line.hash);
    line.too_long = line.too_long || piece.size() > limit;
    if (!line.too_long) {
      line.text = piece;
    }
    position_ = end;
  };
  size_t searched = 0;  // of the buffer from position_
  for (;;) {
    const size_t end = buffer_.find('\n', position_ + searched);
    if (end == std::string::npos && !ended_) {
      if (line.too_long || buffer_.size() - position_ > limit) {
        take(buffer_.size());
      }
      searched = buffer_.size() - position_;
      RETURN_IF_ERROR(fill());
      continue;
    }
    if (end == std::string::npos && position_ == buffer_.size() && !line.too_long) {
      return std::optional<InputLine>();
    }
    take(std::min(end, buffer_.size()));
    position_ = std::min(position_ + 1, buffer_.size());
    searched = 0;
    line.place.number = ++number_;
    if (!blank) {
      return std::optional(std::move(line));
    }
    line = {};
  }
}

Result<InputLine> BatchInput::read_at(const LinePlace& place) const {
  InputLine line;
  line.place = place;
  line.too_long = place.bytes > max_line_bytes_;
  std::string piece;
  for (int64_t read = 0; read < place.bytes;) {
    const auto want = static_cast<size_t>(place.bytes - read);
    piece.resize(line.too_long ? std::min(want, kInputPieceBytes) : want);
    const ssize_t got = ::pread(descriptor_, piece.data(), piece.size(), place.offset + read);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return input_error(path_, got < 0 ? std::strerror(errno) : "it has become shorter");
    }
    piece.resize(static_cast<size_t>(got));
    line.hash = openai::hash_of_line(piece, line.hash);
    read += got;
    if (!line.too_long) {
      line.text += piece;
    }
  }
  return line;
}

Status BatchInput::rewind() {
  if (::lseek(descriptor_, 0, SEEK_SET) < 0) {
    return input_error(path_, std::strerror(errno));
  }
  buffer_.clear();
  position_ = 0;
  buffer_offset_ = 0;
  begun_ = false;
  ended_ = false;
  number_ = 0;
  return {};
}

}  // namespace tandem::jobs
