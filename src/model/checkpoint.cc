#include "model/checkpoint.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "model/json_fields.h"

namespace tandem::model {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxIndexBytes = int64_t{64} << 20;
constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

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
  if (may_exist(folder / kSingleFile)) {
    RETURN_IF_ERROR(checkpoint.add_file(folder, kSingleFile));
    for (const TensorEntry& entry : checkpoint.files_.front().tensors) {
      checkpoint.tensors_[entry.name] = {&entry, 0};
    }
    return checkpoint;
  }
  if (may_exist(folder / kIndexFile)) {
    RETURN_IF_ERROR(checkpoint.open_shards(folder));
    return checkpoint;
  }
  return no_weights(folder);
}

}  // namespace tandem::model
