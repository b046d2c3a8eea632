// What lies in the cache, for `tandem list`.
#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "hub/cache.h"

namespace tandem::hub {

namespace fs = std::filesystem;

namespace {

// "ORG/NAME" of "models--ORG--NAME"; nullopt: the folder holds no model of such a name.
std::optional<std::string> repository_of(std::string_view folder) {
  constexpr std::string_view kPrefix = "models--";
  if (!folder.starts_with(kPrefix)) {
    return std::nullopt;
  }
  std::string name(folder.substr(kPrefix.size()));
  const size_t dashes = name.find("--");
  if (dashes == name.npos) {
    return std::nullopt;
  }
  name.replace(dashes, 2, "/");
  const Result<ModelName> parsed = parse_model_name(name);
  return parsed.ok() ? std::optional(parsed->repository) : std::nullopt;
}

int64_t unfinished_bytes(const Cache& cache) {
  int64_t bytes = 0;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(cache.blobs(), ignored)) {
    if (entry.path().extension() == ".incomplete") {
      const auto size = entry.file_size(ignored);
      bytes += ignored ? 0 : static_cast<int64_t>(size);
    }
  }
  return bytes;
}

// Links to nothing count: the weights were begun.
bool names_safetensors(const fs::path& snapshot) {
  std::error_code ignored;
  const auto is_named = [&](const char* name) {
    return fs::exists(fs::symlink_status(snapshot / name, ignored));
  };
  return is_named("model.safetensors") || is_named("model.safetensors.index.json");
}

// "NAME-00002-of-00003.gguf": it belongs to "NAME-00001-of-00003.gguf".
bool is_later_part(const std::string& file) {
  constexpr size_t kDigits = 5;
  const size_t of = file.rfind("-of-");
  if (of == file.npos || of < kDigits + 1 || file[of - kDigits - 1] != '-') {
    return false;
  }
  const std::string first = file.substr(0, of - kDigits) + "00001" + file.substr(of);
  const std::vector<std::string> parts = gguf_parts(first);
  return first != file && std::ranges::find(parts, file) != parts.end();
}

void read_snapshot(CachedModel& model) {
  std::set<std::string> blobs;  // one file may have several names
  std::error_code ignored;
  for (auto entry = fs::recursive_directory_iterator(model.path, ignored);
       entry != fs::recursive_directory_iterator(); entry.increment(ignored)) {
    if (!entry->is_regular_file(ignored)) {
      continue;
    }
    const auto size = entry->file_size(ignored);
    const fs::path blob = fs::weakly_canonical(entry->path(), ignored);
    if (blobs.insert(blob.string()).second) {
      model.bytes += static_cast<int64_t>(size);
    }
    std::string name = entry->path().lexically_relative(model.path).string();
    if (entry->path().extension() == ".gguf" && !is_later_part(name)) {
      model.gguf.push_back(std::move(name));
    }
  }
  std::ranges::sort(model.gguf);
  model.is_gguf = !model.gguf.empty() && !names_safetensors(model.path);
  if (!model.is_gguf) {
    model.missing = missing_files(model.path, {});
    return;
  }
  for (const std::string& file : model.gguf) {
    for (std::string& part : missing_files(model.path, file)) {
      model.missing.push_back(std::move(part));
    }
  }
}

}  // namespace

std::vector<CachedModel> list_models(const fs::path& root) {
  std::vector<CachedModel> models;
  std::error_code ignored;
  for (const fs::directory_entry& folder : fs::directory_iterator(root, ignored)) {
    const auto repository = repository_of(folder.path().filename().string());
    if (!repository || !folder.is_directory(ignored)) {
      continue;
    }
    const Cache cache(root, *repository);
    const auto refs = cache.refs();
    const int64_t incomplete_bytes = unfinished_bytes(cache);
    bool has_snapshot = false;
    for (const fs::directory_entry& snapshot :
         fs::directory_iterator(cache.folder() / "snapshots", ignored)) {
      const std::string commit = snapshot.path().filename().string();
      if (!is_commit(commit) || !snapshot.is_directory(ignored)) {
        continue;
      }
      CachedModel model{.repository = *repository,
                        .commit = commit,
                        .path = snapshot.path(),
                        .incomplete_bytes = incomplete_bytes};
      if (const auto found = refs.find(commit); found != refs.end()) {
        model.revisions = found->second;
      }
      read_snapshot(model);
      models.push_back(std::move(model));
      has_snapshot = true;
    }
    if (!has_snapshot && incomplete_bytes > 0) {
      models.push_back({.repository = *repository,
                        .path = cache.folder(),
                        .incomplete_bytes = incomplete_bytes,
                        .missing = {"all files"}});
    }
  }
  std::ranges::sort(models, [](const CachedModel& a, const CachedModel& b) {
    return std::tie(a.repository, a.commit) < std::tie(b.repository, b.commit);
  });
  return models;
}

}  // namespace tandem::hub
