// The weight files of a model folder, mapped into memory: model.safetensors, or the shards that
// model.safetensors.index.json names. Knows no model. Immutable after open; any thread. A file must
// not be cut short by others while it is mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/safetensors.h"
#include "model/weight_source.h"

namespace tandem::model {

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

class Checkpoint final : public WeightSource {
 public:
  struct File {
    std::string name;
    std::unique_ptr<MappedFile> mapped;
    std::vector<TensorEntry> tensors;  // by offset
  };
  // Every header is read and checked; no data is. Shard names may not leave the folder.
  static Result<Checkpoint> open(const std::filesystem::path& folder);

  // In the order of their numbers.
  [[nodiscard]] const std::vector<File>& files() const { return files_; }
  [[nodiscard]] const std::map<std::string, Tensor, std::less<>>& tensors() const override {
    return tensors_;
  }
  [[nodiscard]] std::string_view file_name(int32_t file) const override { return at(file).name; }
  [[nodiscard]] const std::byte* data(int32_t file, int64_t offset) const override {
    return at(file).mapped->bytes().data() + offset;
  }
  void will_need(int32_t file, int64_t begin, int64_t end) const override {
    at(file).mapped->will_need(begin, end);
  }
  [[nodiscard]] Status load(int32_t file, int64_t begin, int64_t end) const override {
    return at(file).mapped->populate(begin, end);
  }
  void release(int32_t file, int64_t begin, int64_t end) const override {
    at(file).mapped->release(begin, end);
  }

 private:
  [[nodiscard]] const File& at(int32_t file) const { return files_[static_cast<size_t>(file)]; }
  Status add_file(const std::filesystem::path& folder, const std::string& name);
  Status open_shards(const std::filesystem::path& folder);

  std::vector<File> files_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace tandem::model
