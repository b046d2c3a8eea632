#include "gguf/files.h"

#include <fmt/format.h>

#include <fstream>
#include <system_error>
#include <utility>

namespace tandem::gguf {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxParts = 10'000;

std::string part_suffix(int64_t number, int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number, count);
}

}  // namespace

bool is_gguf(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) {
    return false;
  }
  std::ifstream stream(path, std::ios::binary);
  char magic[4] = {};
  stream.read(magic, sizeof magic);
  return (stream && std::string_view(magic, sizeof magic) == "GGUF") || path.extension() == ".gguf";
}

Status Files::add(const fs::path& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> mapped, MappedFile::open(path));
  std::string name = path.filename().string();
  ASSIGN_OR_RETURN(Header header, parse_header(mapped->bytes(), name));
  parts_.push_back({std::move(name), std::move(mapped), std::move(header)});
  return {};
}

// `first` is the path given, already in parts_.
Status Files::add_parts(const fs::path& first, int64_t count) {
  const Metadata& metadata = parts_.front().header.metadata;
  ASSIGN_OR_RETURN(const std::optional<int64_t> number, metadata.integer("split.no"));
  const std::string name = first.filename().string();
  if (count > kMaxParts) {
    return metadata.error("split.count", fmt::format("is {}; at most {} parts are possible, "
                                                     "download the file again",
                                                     count, kMaxParts));
  }
  if (number.value_or(-1) != 0) {
    return metadata.error("split.no",
                          fmt::format("says that this is not the first of {} parts; pass the one "
                                      "that ends in '{}'",
                                      count, part_suffix(1, count)));
  }
  const std::string suffix = part_suffix(1, count);
  if (!name.ends_with(suffix)) {
    return metadata.error("split.count",
                          fmt::format("says that this is the first of {} parts, whose name must "
                                      "end in '{}'; give all parts the names that they were "
                                      "published with",
                                      count, suffix));
  }
  const std::string stem = name.substr(0, name.size() - suffix.size());
  for (int64_t i = 1; i < count; ++i) {
    RETURN_IF_ERROR(add(first.parent_path() / (stem + part_suffix(i + 1, count))));
    const Metadata& part = parts_.back().header.metadata;
    ASSIGN_OR_RETURN(const std::optional<int64_t> own, part.integer("split.no"));
    ASSIGN_OR_RETURN(const std::optional<int64_t> own_count, part.integer("split.count"));
    if (own.value_or(-1) != i || own_count.value_or(-1) != count) {
      return part.error("split.no",
                        fmt::format("or 'split.count' says that this is part {} of {}, but its "
                                    "name says {} of {}; download it again",
                                    own.value_or(-1) + 1, own_count.value_or(0), i + 1, count));
    }
  }
  return {};
}

Status Files::index_tensors() {
  for (size_t i = 0; i < parts_.size(); ++i) {
    for (const Tensor& tensor : parts_[i].header.tensors) {
      const auto [at, is_new] =
          tensors_.emplace(tensor.name, PlacedTensor{&tensor, static_cast<int32_t>(i)});
      if (!is_new) {
        return invalid_argument(fmt::format("{}: tensor '{}' is in {}, too; download both again",
                                            parts_[i].name, shown(tensor.name),
                                            parts_[static_cast<size_t>(at->second.part)].name));
      }
    }
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> total, metadata().integer("split.tensors.count"));
  if (total && parts_.size() > 1 && std::cmp_not_equal(*total, tensors_.size())) {
    return metadata().error("split.tensors.count",
                            fmt::format("is {}, but the parts hold {} tensors; download them again",
                                        *total, tensors_.size()));
  }
  return {};
}

Result<Files> Files::open(const fs::path& path) {
  Files files;
  RETURN_IF_ERROR(files.add(path));
  ASSIGN_OR_RETURN(const std::optional<int64_t> count, files.metadata().integer("split.count"));
  if (count.value_or(1) > 1) {
    RETURN_IF_ERROR(files.add_parts(path, *count));
  }
  RETURN_IF_ERROR(files.index_tensors());
  return files;
}

}  // namespace tandem::gguf
