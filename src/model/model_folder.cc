#include "model/model_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>

#include "gguf/files.h"
#include "model/gguf_config.h"
#include "model/json_fields.h"
#include "model/packed_source.h"

namespace tandem::model {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxConfigBytes = 1 << 20;

// "org/name": one slash, no folder of that name.
bool looks_like_hub_id(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == 0 || slash == std::string::npos || slash + 1 == text.size() ||
      text.find('/', slash + 1) != std::string::npos || text[0] == '.' || text[0] == '~') {
    return false;
  }
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
  });
}

// The type of the file at `path`. An error if the system does not say: usually a folder above it
// may not be searched.
Result<fs::file_type> type_of(const fs::path& path) {
  std::error_code failure;
  const fs::file_type type = fs::status(path, failure).type();
  if (type == fs::file_type::none) {
    const bool denied = failure == std::errc::permission_denied;
    return Error{ErrorCode::kIo,
                 fmt::format("'{}' cannot be opened: {}{}", path.string(), failure.message(),
                             denied ? "; Tandem's user must be allowed to read it and to search "
                                      "the folders above it"
                                    : ""),
                 "model"};
  }
  return type;
}

Error not_a_folder(const fs::path& path, fs::file_type type) {
  const std::string text = path.string();
  if (type == fs::file_type::regular && ::access(path.c_str(), R_OK) != 0) {
    return {ErrorCode::kIo,
            fmt::format("'{}' cannot be read: {}", text, std::generic_category().message(errno)),
            "model"};
  }
  if (type == fs::file_type::regular) {
    return invalid_argument(
        fmt::format("'{}' is a file, but not in GGUF; pass a *.gguf file, or the folder that "
                    "holds config.json and *.safetensors",
                    text),
        "model");
  }
  if (looks_like_hub_id(text)) {
    return {ErrorCode::kNotFound,
            fmt::format("there is no folder '{0}'. If it is the name of a model on a hub: `tandem "
                        "pull {0}` downloads it and prints its folder; pass that",
                        text),
            "model"};
  }
  return {ErrorCode::kNotFound,
          fmt::format("there is no folder '{}'; pass a Hugging Face folder with config.json and "
                      "*.safetensors, or make one with `tandem model make`",
                      text),
          "model"};
}

Error no_config(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path / "snapshots", ignored)) {
    return invalid_argument(fmt::format("'{}' is a download cache; pass the folder "
                                        "snapshots/REVISION inside it",
                                        path.string()),
                            "model");
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored)) {
    if (entry.path().extension() == ".gguf") {
      return invalid_argument(
          fmt::format("'{}' holds GGUF files and no config.json; pass one of the "
                      "files, of a split model the first part",
                      path.string()),
          "model");
    }
  }
  return invalid_argument(
      fmt::format("'{}' has no config.json; it must be a Hugging Face model folder: config.json, "
                  "*.safetensors and a tokenizer",
                  path.string()),
      "model");
}

void sort_unique(std::vector<TokenId>& ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

}  // namespace

void add_end_token(ModelFolder& folder, TokenId id, std::string_view source) {
  if (id < 0 || id >= folder.config.vocabulary) {
    folder.warnings.push_back(fmt::format(
        "{}: the end token has the id {}, but the model makes ids from 0 to {}; ignored", source,
        id, folder.config.vocabulary - 1));
    return;
  }
  folder.eos_token_ids.push_back(id);
  sort_unique(folder.eos_token_ids);
}

namespace {

// What both kinds have in common, once `config` and `generation` are there.
void finish_folder(ModelFolder& folder) {
  for (const auto* ids : {&folder.config.eos_token_ids, &folder.generation.eos_token_ids}) {
    folder.eos_token_ids.insert(folder.eos_token_ids.end(), ids->begin(), ids->end());
  }
  sort_unique(folder.eos_token_ids);
  for (const auto* lines : {&folder.config.warnings, &folder.generation.warnings}) {
    folder.warnings.insert(folder.warnings.end(), lines->begin(), lines->end());
  }
}

Result<ModelFolder> open_gguf(const fs::path& path) {
  ModelFolder folder;
  folder.path = path;
  ASSIGN_OR_RETURN(const gguf::Files files, gguf::Files::open(path));
  ASSIGN_OR_RETURN(folder.config, gguf_config(files));
  ASSIGN_OR_RETURN(folder.generation,
                   gguf_generation_defaults(files.metadata(), folder.config.vocabulary));
  folder.stored = gguf_weight_formats(files, folder.config);
  finish_folder(folder);
  return folder;
}

}  // namespace

Result<ModelFolder> open_model_folder(const fs::path& path) {
  if (gguf::is_gguf(path)) {
    return open_gguf(path);
  }
  ASSIGN_OR_RETURN(const fs::file_type type, type_of(path));
  if (type != fs::file_type::directory) {
    return not_a_folder(path, type);
  }
  ASSIGN_OR_RETURN(const fs::file_type config_type, type_of(path / "config.json"));
  if (config_type != fs::file_type::regular) {
    return no_config(path);
  }
  ModelFolder folder;
  folder.path = path;
  ASSIGN_OR_RETURN(const std::string text, read_text_file(path / "config.json", kMaxConfigBytes));
  ASSIGN_OR_RETURN(folder.config, parse_config(text));
  ASSIGN_OR_RETURN(folder.generation, read_generation_config(path, folder.config.vocabulary));
  if (folder.config.quantization) {
    ASSIGN_OR_RETURN(folder.stored, packed_weight_formats(path, folder.config));
  }
  finish_folder(folder);
  return folder;
}

}  // namespace tandem::model
