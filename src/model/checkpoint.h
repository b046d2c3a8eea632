// The weight files of a model folder, mapped into memory: model.safetensors, or the shards that
// model.safetensors.index.json names. Knows no model. Immutable after open; any thread. A file must
// not be cut short by others while it is mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "model/safetensors.h"
#include "model/weight_source.h"

namespace tandem::model {

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
  [[nodiscard]] std::string name_in_file(std::string_view tensor) const override {
    return std::string(tensor);
  }
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
