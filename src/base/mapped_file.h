// A file mapped into memory. Immutable after open; any thread. A file must not be cut short by
// others while it is mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>

#include "base/result.h"

namespace tandem {

// True also if the system does not say, as without permission: then opening the file says why.
inline bool may_exist(const std::filesystem::path& file) {
  std::error_code ignored;
  return std::filesystem::status(file, ignored).type() != std::filesystem::file_type::not_found;
}

// A whole file, read-only. Hints are hints: failing ones are ignored.
class MappedFile {
 public:
  static Result<std::unique_ptr<MappedFile>> open(const std::filesystem::path& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Starts reading [begin, end) from the disk.
  void will_need(int64_t begin, int64_t end) const;
  // Maps the pages of [begin, end) at once, instead of one fault each. An error where the file has
  // become shorter or the disk cannot read it: touching such a page would end the process.
  [[nodiscard]] Status populate(int64_t begin, int64_t end) const;
  // Unmaps the whole pages inside [begin, end); they would be read again when touched.
  void release(int64_t begin, int64_t end) const;

 private:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}
  const std::byte* data_;
  size_t size_;
};

}  // namespace tandem
