#include "model/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>

#include "model/json_fields.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace tandem::model {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxIndexBytes = int64_t{64} << 20;
constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

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

Error no_weights(const fs::path& folder) {
  std::error_code ignored;
  bool others = false;
  bool safetensors = false;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const fs::path extension = entry.path().extension();
    others = others || extension == ".bin" || extension == ".pt" || extension == ".pth";
    safetensors = safetensors || extension == ".safetensors";
  }
  const char* hint = safetensors ? "; there are other *.safetensors: is the index missing?"
                     : others    ? "; PyTorch files are not read: convert them to safetensors"
                                 : "; is the download complete?";
  return {
      ErrorCode::kNotFound,
      fmt::format("'{}' has neither {} nor {}{}", folder.string(), kSingleFile, kIndexFile, hint),
      {}};
}

}  // namespace

Result<std::unique_ptr<MappedFile>> MappedFile::open(const fs::path& file) {
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

Status Checkpoint::add_file(const fs::path& folder, const std::string& name) {
  ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> mapped, MappedFile::open(folder / name));
  ASSIGN_OR_RETURN(std::vector<TensorEntry> entries,
                   parse_safetensors_header(mapped->bytes(), name));
  files_.push_back({name, std::move(mapped), std::move(entries)});
  return {};
}

Status Checkpoint::open_shards(const fs::path& folder) {
  ASSIGN_OR_RETURN(const std::string text, read_text_file(folder / kIndexFile, kMaxIndexBytes));
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::parse(kIndexFile, text));
  ASSIGN_OR_RETURN(const std::optional<JsonFields> map, fields.object("weight_map"));
  if (!map || map->json().empty()) {
    return fields.error("weight_map", "is missing or empty");
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->json().items()) {
    if (!file.is_string()) {
      return fields.error("weight_map", fmt::format("'{}' does not name a file", tensor));
    }
    const auto name = file.get<std::string>();
    if (name.empty() || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos || name == "." || name == "..") {
      return fields.error("weight_map", fmt::format("'{}' is not the plain name of a file in the "
                                                    "model's folder",
                                                    name.substr(0, 100)));
    }
    names.insert(name);
  }
  std::map<std::string, int32_t> index_of;
  for (const std::string& name : names) {
    RETURN_IF_ERROR(add_file(folder, name));
    index_of[name] = static_cast<int32_t>(files_.size()) - 1;
  }
  for (const auto& [tensor, file] : map->json().items()) {
    tensors_[tensor] = {nullptr, index_of.at(file.get<std::string>())};
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    for (const TensorEntry& entry : files_[i].tensors) {
      const auto it = tensors_.find(entry.name);
      if (it != tensors_.end() && std::cmp_equal(it->second.file, i)) {
        it->second.entry = &entry;
      }
    }
  }
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.entry == nullptr) {
      return invalid_argument(
          fmt::format("{}: says that '{}' is in {}, but it is not; download both again", kIndexFile,
                      name, files_[static_cast<size_t>(tensor.file)].name));
    }
  }
  return {};
}

Result<Checkpoint> Checkpoint::open(const fs::path& folder) {
  Checkpoint checkpoint;
  std::error_code ignored;
  if (fs::exists(folder / kSingleFile, ignored)) {
    RETURN_IF_ERROR(checkpoint.add_file(folder, kSingleFile));
    for (const TensorEntry& entry : checkpoint.files_.front().tensors) {
      checkpoint.tensors_[entry.name] = {&entry, 0};
    }
    return checkpoint;
  }
  if (fs::exists(folder / kIndexFile, ignored)) {
    RETURN_IF_ERROR(checkpoint.open_shards(folder));
    return checkpoint;
  }
  return no_weights(folder);
}

Result<std::unique_ptr<WeightSource>> open_weights(const fs::path& folder) {
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(folder));
  return std::unique_ptr<WeightSource>(std::make_unique<Checkpoint>(std::move(checkpoint)));
}

}  // namespace tandem::model
