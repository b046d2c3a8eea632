// A model in GGUF: one file, or the parts NAME-00001-of-0000N.gguf of a split one. Every part is
// mapped and its header read; no data is. Immutable after open; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "gguf/header.h"

namespace tandem::gguf {

// True: a regular file that begins as GGUF does, or is named so.
bool is_gguf(const std::filesystem::path& path);

class Files {
 public:
  struct Part {
    std::string name;  // without folders
    std::unique_ptr<MappedFile> mapped;
    Header header;
  };
  struct PlacedTensor {
    const Tensor* tensor = nullptr;
    int32_t part = 0;
  };

  // `path` names the file, or the first part. Errors name the part at fault.
  static Result<Files> open(const std::filesystem::path& path);

  // Of the first part, where a split model has all of it.
  [[nodiscard]] const Metadata& metadata() const { return parts_.front().header.metadata; }
  [[nodiscard]] const std::vector<Part>& parts() const { return parts_; }
  [[nodiscard]] const std::map<std::string_view, PlacedTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const PlacedTensor* find(std::string_view name) const {
    const auto it = tensors_.find(name);
    return it == tensors_.end() ? nullptr : &it->second;
  }

 private:
  Status add(const std::filesystem::path& path);
  Status add_parts(const std::filesystem::path& first, int64_t count);
  Status index_tensors();

  std::vector<Part> parts_;
  std::map<std::string_view, PlacedTensor> tensors_;
};

}  // namespace tandem::gguf
