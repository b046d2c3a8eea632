#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace tandem {
namespace {

std::string last_error() { return std::generic_category().message(errno); }

// madvise over [begin, end) widened to pages; 0 or errno.
int advise_outward(std::span<const std::byte> bytes, int64_t begin, int64_t end, int advice) {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  begin = begin / page * page;
  end = std::min<int64_t>(end, static_cast<int64_t>(bytes.size()));
  if (begin >= end) {
    return 0;
  }
  std::byte* address = const_cast<std::byte*>(bytes.data()) + begin;
  return ::madvise(address, static_cast<size_t>(end - begin), advice) == 0 ? 0 : errno;
}

}  // namespace

Result<std::unique_ptr<MappedFile>> MappedFile::open(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  // O_NONBLOCK: a pipe in place of the file must not hang us.
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    return Error{errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                 fmt::format("{}: cannot be opened: {}; is the download complete, and may this "
                             "user read it?",
                             name, last_error()),
                 {}};
  }
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) {
    ::close(descriptor);
    return invalid_argument(fmt::format("{}: is empty or not a regular file", name));
  }
  const auto size = static_cast<size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  const std::string reason = data == MAP_FAILED ? last_error() : "";
  ::close(descriptor);
  if (data == MAP_FAILED) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("{}: {} bytes cannot be mapped: {}", name, size, reason),
                 {}};
  }
  return std::unique_ptr<MappedFile>(new MappedFile(static_cast<const std::byte*>(data), size));
}

MappedFile::~MappedFile() { ::munmap(const_cast<std::byte*>(data_), size_); }

void MappedFile::will_need(int64_t begin, int64_t end) const {
  advise_outward(bytes(), begin, end, MADV_WILLNEED);
}

Status MappedFile::populate(int64_t begin, int64_t end) const {
  // Kernels before 5.14 answer EINVAL and fault page by page later.
  if (advise_outward(bytes(), begin, end, MADV_POPULATE_READ) == EFAULT) {
    return Error{
        ErrorCode::kIo, "the file became shorter while it was read, or the disk failed", {}};
  }
  return {};
}

void MappedFile::release(int64_t begin, int64_t end) const {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  begin = (begin + page - 1) / page * page;
  end = end / page * page;
  if (begin < end) {
    ::madvise(const_cast<std::byte*>(data_) + begin, static_cast<size_t>(end - begin),
              MADV_DONTNEED);
  }
}

}  // namespace tandem
