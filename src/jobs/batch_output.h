// The output file of a batch run: lines are only ever appended, whole, and synced to the disk, so
// that a run which was killed goes on where it was. Opening reads what is there: the answered
// lines, and what a kill or a loss of power left broken, which is taken out: a torn last line, and
// zeros that stand where bytes never reached the disk before later ones did. A file that is no
// output of this batch is left untouched, unless the caller says that the file is its own. Locked
// against a second run. Threads: one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/result.h"

namespace tandem::jobs {

// What a file held when it was opened.
struct WrittenLines {
  std::unordered_map<int64_t, uint64_t> hash_by_number;  // of the input lines that have an answer
  std::unordered_set<std::string> custom_ids;            // theirs, without refused duplicates
  int64_t failed = 0;                                    // of them, those that are errors
  int64_t torn_bytes = 0;                                // cut off at the end
  int64_t zeroed_bytes = 0;                              // of lines with zeros in them, taken out
  int64_t foreign_bytes = 0;  // of other lines, taken out of the caller's own file
};

struct OpenedOutput {
  // The caller's own file, which holds answers or damage: other lines are taken out, and a
  // file without answers is emptied.
  bool drops_damage = false;
  std::function<bool()> should_stop;  // kUnavailable when it says so; absent: never
};

class BatchOutput {
 public:
  // Makes the file where there is none.
  static Result<BatchOutput> open(const std::filesystem::path& path, const OpenedOutput& how = {});
  ~BatchOutput();
  BatchOutput(BatchOutput&& other) noexcept;
  BatchOutput& operator=(BatchOutput&&) = delete;

  [[nodiscard]] const WrittenLines& written() const { return written_; }

  // Appends whole lines. On failure (the disk is full) the file ends with the last whole line
  // before them.
  Status append(std::string_view lines);
  // Appended lines survive a loss of power from here on. On failure, lines appended since the
  // last success are taken out: any of them may be missing on the disk.
  Status sync();

 private:
  BatchOutput(int descriptor, std::filesystem::path path)
      : descriptor_(descriptor), path_(std::move(path)) {}
  Status lock();
  Status read_written(const OpenedOutput& how);
  Status take_line(std::string_view line, int64_t number);
  Status take_or_leave(std::string_view line, int64_t number, const OpenedOutput& how,
                       std::string& moved);
  Status mend(std::string_view moved, std::string_view torn, const OpenedOutput& how);
  [[nodiscard]] Error failure(std::string_view doing) const;

  int descriptor_;
  std::filesystem::path path_;
  int64_t size_bytes_ = 0;    // of whole lines
  int64_t synced_bytes_ = 0;  // of them, those that are on the disk
  WrittenLines written_;
};

}  // namespace tandem::jobs
