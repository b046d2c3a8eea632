// Reads the lines of a batch's input file one after the other, or a line by its place, with bounded
// memory: a line that is too long is skipped and says so, with its hash. Owns the descriptor.
// Threads: one at a time for next() and rewind(); read_at() from any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/result.h"
#include "openai/batch_line.h"

namespace tandem::jobs {

// Where a line is in the file.
struct LinePlace {
  int64_t number = 0;  // 1 is the first of the file; blank lines count but are not returned
  int64_t offset = 0;  // bytes of the file before it
  int64_t bytes = 0;   // without the line end
};

struct InputLine {
  LinePlace place;
  std::string text;                        // without the line end; empty where too_long
  uint64_t hash = openai::kHashOfNothing;  // of the whole line, whatever its length
  bool too_long = false;                   // longer than max_line_bytes
};

class BatchInput {
 public:
  // Needs a regular file, since it is read twice: once to count, once to work.
  static Result<BatchInput> open(const std::filesystem::path& path, int64_t max_line_bytes);
  ~BatchInput();
  BatchInput(BatchInput&& other) noexcept;
  BatchInput& operator=(BatchInput&&) = delete;

  // The next line that is not blank; nullopt: the end.
  Result<std::optional<InputLine>> next();
  Status rewind();
  // The line again that next() returned with this place. kIo also if the file has become shorter.
  [[nodiscard]] Result<InputLine> read_at(const LinePlace& place) const;
  [[nodiscard]] int64_t max_line_bytes() const { return max_line_bytes_; }

 private:
  BatchInput(int descriptor, std::filesystem::path path, int64_t max_line_bytes)
      : descriptor_(descriptor), path_(std::move(path)), max_line_bytes_(max_line_bytes) {}
  Status fill();

  int descriptor_;
  std::filesystem::path path_;
  int64_t max_line_bytes_;
  std::string buffer_;  // read but not returned yet, from position_
  size_t position_ = 0;
  int64_t buffer_offset_ = 0;  // bytes of the file before buffer_
  bool begun_ = false;         // some of the file was read
  bool ended_ = false;
  int64_t number_ = 0;
};

}  // namespace tandem::jobs
