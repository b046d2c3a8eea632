#include "hub/file_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json_values.h"
#include "base/printable.h"
#include "hub/checksum.h"

namespace tandem::hub {
namespace {

constexpr int32_t kMaxNesting = 32;
constexpr size_t kMaxFiles = 100'000;
constexpr size_t kMaxFilesShown = 10;
constexpr int32_t kMaxParts = 1000;
constexpr const char* kSingleFile = "model.safetensors";

Error bad_list(std::string_view why) {
  return {ErrorCode::kIo,
          fmt::format("the hub's list of files cannot be used: {}; is HF_ENDPOINT the address of a "
                      "hub?",
                      why),
          "model"};
}

// At most the beginning, without what a terminal would interpret.
std::string shown(std::string_view text) {
  constexpr size_t kMaxShown = 80;
  return printable(text, kMaxShown);
}

std::string text_member(const nlohmann::json& object, std::string_view key) {
  const nlohmann::json* found = json_member(object, key);
  return found != nullptr && found->is_string() ? found->get<std::string>() : std::string();
}

Result<RemoteFile> read_file(const nlohmann::json& entry) {
  if (!entry.is_object()) {
    return bad_list("an entry of siblings is not an object");
  }
  RemoteFile file{.path = text_member(entry, "rfilename"), .size = {}, .checksum = {}};
  if (!stays_inside(file.path)) {
    return bad_list(fmt::format("the file name '{}' is not one that can be made below a folder",
                                shown(file.path)));
  }
  const nlohmann::json* lfs = json_member(entry, "lfs");
  const bool is_large = lfs != nullptr && lfs->is_object();
  const nlohmann::json* size = json_member(is_large ? *lfs : entry, "size");
  if (size != nullptr) {
    file.size = json_integer(*size);
    if (!file.size || *file.size < 0 || *file.size > kMaxFileBytes) {
      return bad_list(fmt::format("'{}' has the size {}", shown(file.path), shown(size->dump())));
    }
  }
  file.checksum = text_member(is_large ? *lfs : entry, is_large ? "sha256" : "blobId");
  if (!file.checksum.empty() && !is_checksum(file.checksum)) {
    return bad_list(fmt::format("'{}' has the checksum '{}', which is neither SHA-256 nor git's",
                                shown(file.path), shown(file.checksum)));
  }
  return file;
}

bool has_file(const FileList& list, std::string_view path) {
  return std::ranges::find(list.files, path, &RemoteFile::path) != list.files.end();
}

// Of files that are neither weights nor in a folder.
bool is_small_file(std::string_view name) {
  const bool is_text = name.ends_with(".json") || name.ends_with(".model") ||
                       name.ends_with(".jinja") || name.ends_with(".txt");
  return is_text && is_safe_path(name) && name.find('/') == name.npos &&
         (name == "config.json" || name == "generation_config.json" ||
          name == "special_tokens_map.json" || name == "added_tokens.json" || name == kIndexFile ||
          name.starts_with("tokenizer") || name.starts_with("chat_template"));
}

void sort_largest_first(std::vector<RemoteFile>& files) {
  std::ranges::sort(files, [](const RemoteFile& a, const RemoteFile& b) {
    const int64_t a_size = a.size.value_or(0);
    const int64_t b_size = b.size.value_or(0);
    return a_size != b_size ? a_size > b_size : a.path < b.path;
  });
}

std::vector<std::string> files_that_end_in(const FileList& list, std::string_view ending) {
  std::vector<std::string> found;
  for (const RemoteFile& file : list.files) {
    if (file.path.ends_with(ending) && is_safe_path(file.path)) {
      found.push_back(file.path);
    }
  }
  std::ranges::sort(found);
  return found;
}

std::string some_of(const std::vector<std::string>& names) {
  const size_t count = std::min(names.size(), kMaxFilesShown);
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count), ", "));
  return names.size() > count ? fmt::format("{} and {} more", text, names.size() - count) : text;
}

Result<NeededFiles> needed_gguf_files(const FileList& list, const ModelName& name) {
  NeededFiles needed;
  for (const std::string& part : gguf_parts(name.file)) {
    const auto found = std::ranges::find(list.files, part, &RemoteFile::path);
    if (found == list.files.end()) {
      const std::vector<std::string> others = files_that_end_in(list, ".gguf");
      return Error{ErrorCode::kNotFound,
                   fmt::format("'{}' has no file '{}'; {}", name.repository, part,
                               others.empty() ? std::string("it has no GGUF files at all")
                                              : "it has " + some_of(others)),
                   "model"};
    }
    needed.weights.push_back(*found);
  }
  sort_largest_first(needed.weights);
  return needed;
}

Error lacks(const FileList& list, const ModelName& name) {
  const std::vector<std::string> gguf = files_that_end_in(list, ".gguf");
  if (!gguf.empty()) {
    return invalid_argument(
        fmt::format("'{0}' is a repository of GGUF files; name one of them, for "
                    "example {0}:{1} (it has {2})",
                    name.repository, gguf.front(), some_of(gguf)),
        "model");
  }
  if (!has_file(list, "config.json")) {
    return invalid_argument(
        fmt::format("'{}' has no config.json: it is not a model that Tandem can serve",
                    name.repository),
        "model");
  }
  return invalid_argument(
      fmt::format(
          "'{}' has no model.safetensors and no model.safetensors.index.json; PyTorch files "
          "are not read. Choose a repository with safetensors",
          name.repository),
      "model");
}

}  // namespace

Result<FileList> parse_file_list(std::string_view body) {
  if (json_nests_deeper(body, kMaxNesting)) {
    return bad_list("it nests too deep");
  }
  const nlohmann::json json = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return bad_list("it is not a JSON object");
  }
  FileList list;
  list.commit = text_member(json, "sha");
  if (!is_commit(list.commit)) {
    return bad_list(
        fmt::format("the commit '{}' is not 40 hexadecimal digits", shown(list.commit)));
  }
  const nlohmann::json* siblings = json_member(json, "siblings");
  if (siblings == nullptr || !siblings->is_array()) {
    return bad_list("it has no array 'siblings'");
  }
  if (siblings->size() > kMaxFiles) {
    return bad_list(fmt::format("{} files are more than {}", siblings->size(), kMaxFiles));
  }
  std::set<std::string> seen;
  for (const nlohmann::json& entry : *siblings) {
    ASSIGN_OR_RETURN(RemoteFile file, read_file(entry));
    if (!seen.insert(file.path).second) {
      return bad_list(fmt::format("'{}' is named twice", shown(file.path)));
    }
    list.files.push_back(std::move(file));
  }
  return list;
}

std::vector<std::string> gguf_parts(std::string_view file) {
  // The length of "-00001-of-00003.gguf".
  constexpr std::string_view kTail = "-00001-of-";
  constexpr size_t kDigits = 5;
  constexpr std::string_view kEnd = ".gguf";
  const size_t tail = kTail.size() + kDigits + kEnd.size();
  if (file.size() > tail) {
    const std::string_view stem = file.substr(0, file.size() - tail);
    const std::string_view ending = file.substr(stem.size());
    const std::string_view digits = ending.substr(kTail.size(), kDigits);
    int32_t parts = 0;
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), parts);
    if (ending.starts_with(kTail) && ending.ends_with(kEnd) && code == std::errc() &&
        end == digits.data() + digits.size() && parts >= 1 && parts <= kMaxParts) {
      std::vector<std::string> names;
      for (int32_t i = 1; i <= parts; ++i) {
        names.push_back(fmt::format("{}-{:05}-of-{:05}.gguf", stem, i, parts));
      }
      return names;
    }
  }
  return {std::string(file)};
}

Result<NeededFiles> needed_files(const FileList& list, const ModelName& name) {
  if (!name.file.empty()) {
    return needed_gguf_files(list, name);
  }
  const bool has_index = has_file(list, kIndexFile);
  if (!has_file(list, "config.json") || (!has_index && !has_file(list, kSingleFile))) {
    return lacks(list, name);
  }
  NeededFiles needed;
  for (const RemoteFile& file : list.files) {
    if (is_small_file(file.path)) {
      needed.small.push_back(file);
    } else if (!has_index && file.path == kSingleFile) {
      needed.weights.push_back(file);
    }
  }
  std::ranges::sort(needed.small, {}, &RemoteFile::path);
  return needed;
}

Result<std::vector<RemoteFile>> shards_of_index(const FileList& list, const ModelName& name,
                                                const std::vector<std::string>& named) {
  std::vector<RemoteFile> shards;
  for (const std::string& path : named) {
    const auto found = std::ranges::find(list.files, path, &RemoteFile::path);
    if (found == list.files.end() || path.find('/') != path.npos) {
      const auto single = std::ranges::find(list.files, kSingleFile, &RemoteFile::path);
      if (single != list.files.end()) {
        return std::vector<RemoteFile>{*single};  // which a server reads before the index
      }
      return invalid_argument(
          fmt::format(
              "'{}' cannot be served: its {} names '{}', {}", name.text(), kIndexFile, path,
              found == list.files.end() ? "which the repository lacks" : "which is not beside it"),
          "model");
    }
    shards.push_back(*found);
  }
  sort_largest_first(shards);
  return shards;
}

}  // namespace tandem::hub
