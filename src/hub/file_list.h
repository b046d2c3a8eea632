// The hub's answer about a model: its commit and its files (GET /api/models/NAME/revision/REVISION
// with blobs=true). Outside data: every name, size and checksum is checked. Threads: pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/model_name.h"

namespace tandem::hub {

struct RemoteFile {
  std::string path;             // below the repository, separated by /
  std::optional<int64_t> size;  // bytes; a hub may leave it out
  std::string checksum;         // see checksum.h; empty: the hub left it out

  bool operator==(const RemoteFile&) const = default;
};

struct FileList {
  std::string commit;
  std::vector<RemoteFile> files;
};

constexpr int64_t kMaxFileListBytes = int64_t{32} << 20;
constexpr int64_t kMaxFileBytes = int64_t{1} << 42;

// Refuses the whole list if a name could reach outside of the model's folder, or is named twice.
Result<FileList> parse_file_list(std::string_view body);

// The files of `list` that a server reads, in the order in which they are brought.
struct NeededFiles {
  // Configuration, tokenizer, chat template and the index of the weights.
  std::vector<RemoteFile> small;
  // The largest first: the GGUF file that `name` names, with the parts of a split one; or the
  // model's only file of safetensors. Empty where small[i] is an index: see shards_of_index.
  std::vector<RemoteFile> weights;
};

inline constexpr const char* kIndexFile = "model.safetensors.index.json";

// An error says what the model lacks, and which of its files can be named instead.
Result<NeededFiles> needed_files(const FileList& list, const ModelName& name);

// The weights that the model's index names, the largest first. `named`: see files_of_index. An
// error names a file that the repository lacks.
Result<std::vector<RemoteFile>> shards_of_index(const FileList& list, const ModelName& name,
                                                const std::vector<std::string>& named);

// "NAME-00001-of-0000N.gguf" stands for all N parts; otherwise for itself alone.
[[nodiscard]] std::vector<std::string> gguf_parts(std::string_view file);

}  // namespace tandem::hub
