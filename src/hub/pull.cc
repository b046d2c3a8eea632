#include "hub/pull.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "base/units.h"
#include "hub/cache.h"
#include "hub/client.h"
#include "hub/downloads.h"
#include "hub/file_list.h"

namespace tandem::hub {
namespace {

namespace fs = std::filesystem;

std::string some_names(const std::vector<std::string>& names) {
  constexpr size_t kMaxShown = 5;
  const size_t count = std::min(names.size(), kMaxShown);
  const std::string text = printable(fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count), ", ")));
  return names.size() > count ? fmt::format("{} and {} more", text, names.size() - count) : text;
}

fs::path path_in(const fs::path& snapshot, const ModelName& name) {
  return name.file.empty() ? snapshot : snapshot / gguf_parts(name.file).front();
}

// The model as the cache has it; an error says what is missing.
Result<PulledModel> from_cache(const Cache& cache, const ModelName& name) {
  const std::optional<std::string> commit = cache.commit_of(name.revision);
  std::error_code ignored;
  if (!commit || !fs::is_directory(cache.snapshot(*commit), ignored)) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("'{}' is not in the cache '{}'; run `tandem pull {}` once without "
                             "--offline and HF_HUB_OFFLINE",
                             name.text(), cache.folder().parent_path().string(), name.text()),
                 "model"};
  }
  const std::vector<std::string> missing = missing_files(cache.snapshot(*commit), name.file);
  if (!missing.empty()) {
    return Error{
        ErrorCode::kNotFound,
        fmt::format("'{}' is not whole in the cache '{}': {} missing; run `tandem pull {}` "
                    "once without --offline and HF_HUB_OFFLINE",
                    name.text(), cache.folder().parent_path().string(), some_names(missing),
                    name.text()),
        "model"};
  }
  return PulledModel{
      .path = path_in(cache.snapshot(*commit), name), .commit = *commit, .asked_hub = false};
}

// A whole version of a model whose ref leads to none, such as that before a download that ended
// early: the newest snapshot that no ref names, for the default revision alone.
std::optional<PulledModel> older_in_cache(const Cache& cache, const ModelName& name) {
  if (name.revision != ModelName().revision) {
    return std::nullopt;
  }
  const auto refs = cache.refs();
  std::optional<PulledModel> newest;
  fs::file_time_type newest_time;
  std::error_code ignored;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(cache.folder() / "snapshots", ignored)) {
    const std::string commit = entry.path().filename().string();
    const fs::file_time_type time = entry.last_write_time(ignored);
    if (is_commit(commit) && !refs.contains(commit) && (!newest || time > newest_time) &&
        missing_files(entry.path(), name.file).empty()) {
      newest =
          PulledModel{.path = path_in(entry.path(), name), .commit = commit, .asked_hub = false};
      newest_time = time;
    }
  }
  return newest;
}

// On the disk: a file with holes takes less than its size.
int64_t bytes_on_disk(const fs::path& path) {
  struct stat info {};
  constexpr int64_t kBlockBytes = 512;  // of st_blocks, by definition
  return ::stat(path.c_str(), &info) == 0
             ? std::min<int64_t>(info.st_size, info.st_blocks * kBlockBytes)
             : 0;
}

// Before hours of transfer.
Status check_space(const Cache& cache, const std::vector<RemoteFile>& files) {
  int64_t needed = 0;
  for (const RemoteFile& file : files) {
    if (!cache.has_blob(file)) {
      needed += std::max<int64_t>(0, *file.size - bytes_on_disk(cache.incomplete(file.checksum)));
    }
  }
  struct statvfs info {};
  if (::statvfs(cache.blobs().c_str(), &info) != 0) {
    return {};
  }
  const auto available = static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
  if (needed > available) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("the model needs {} more in '{}', and its disk has {}; free some "
                             "space, or name another folder with --hub-cache or HF_HOME",
                             format_bytes(needed), cache.blobs().string(), format_bytes(available)),
                 "hub-cache"};
  }
  return {};
}

// One file for each checksum: files with the same content share a blob.
std::vector<RemoteFile> different_files(const std::vector<RemoteFile>& files) {
  std::vector<RemoteFile> different;
  std::set<std::string> checksums;
  for (const RemoteFile& file : files) {
    if (checksums.insert(file.checksum).second) {
      different.push_back(file);
    }
  }
  return different;
}

// A model whose files the hub has listed.
class ListedModel {
 public:
  ListedModel(const ModelName& name, const HubOptions& options, const PullHooks& hooks,
              const Cache& cache, Client& client, const FileList& list)
      : name_(name),
        hooks_(hooks),
        cache_(cache),
        client_(client),
        list_(list),
        downloads_(name, options, hooks, cache, list.commit) {}

  Result<PulledModel> bring() {
    ASSIGN_OR_RETURN(NeededFiles needed, needed_files(list_, name_));
    RETURN_IF_ERROR(fetch(std::move(needed.small)));
    RETURN_IF_ERROR(check_small_files(needed.weights));
    RETURN_IF_ERROR(fetch(std::move(needed.weights)));
    for (const RemoteFile& file : files_) {
      if (!copies_.contains(file.path)) {
        RETURN_IF_ERROR(cache_.link(list_.commit, file));
      }
    }
    const fs::path snapshot = cache_.snapshot(list_.commit);
    if (const auto missing = missing_files(snapshot, name_.file); !missing.empty()) {
      return invalid_argument(fmt::format("'{}' cannot be served: its repository lacks {}",
                                          name_.text(), some_names(missing)),
                              "model");
    }
    RETURN_IF_ERROR(cache_.write_ref(name_.revision, list_.commit));
    for (const std::string& file : gguf_parts(name_.file)) {  // "" for a folder
      cache_.mark_complete(list_.commit, file);
    }
    return PulledModel{.path = path_in(snapshot, name_),
                       .commit = list_.commit,
                       .bytes = downloads_.total_bytes()};
  }

 private:
  // Brings the contents of `files`; links come when all of the model is there.
  Status fetch(std::vector<RemoteFile> files) {
    std::vector<RemoteFile> wanted;
    for (RemoteFile& file : files) {
      RETURN_IF_ERROR(client_.complete(list_.commit, file));
      if (cache_.has_copy(list_.commit, file, hooks_.stop)) {
        copies_.insert(file.path);
      } else {
        wanted.push_back(file);
      }
      files_.push_back(file);
    }
    wanted = different_files(wanted);
    const bool all_there =
        std::ranges::all_of(wanted, [&](const RemoteFile& file) { return cache_.has_blob(file); });
    if (!all_there) {
      RETURN_IF_ERROR(cache_.make_folders());
      RETURN_IF_ERROR(check_space(cache_, wanted));
    }
    return downloads_.run(wanted);
  }

  // What can be refused without the weights; and names the weights that an index lists.
  Status check_small_files(std::vector<RemoteFile>& weights) {
    for (const RemoteFile& file : files_) {
      const fs::path path = copies_.contains(file.path) ? cache_.snapshot(list_.commit) / file.path
                                                        : cache_.blob(file.checksum);
      if (file.path == "config.json" && hooks_.check_config != nullptr) {
        if (const Status fit = hooks_.check_config(path); !fit.ok()) {
          Error error = fit.error();
          error.message = fmt::format("'{}' cannot be served: {}", name_.text(), error.message);
          return error;
        }
      } else if (file.path == kIndexFile) {
        ASSIGN_OR_RETURN(const std::vector<std::string> named, read_index(path));
        ASSIGN_OR_RETURN(weights, shards_of_index(list_, name_, named));
      }
    }
    return {};
  }

  const ModelName& name_;
  const PullHooks& hooks_;
  const Cache& cache_;
  Client& client_;
  const FileList& list_;
  Downloads downloads_;
  std::vector<RemoteFile> files_;  // all so far
  std::set<std::string> copies_;   // paths of the files that are in the snapshot itself
};

// False: the hub said no. An older version would hide that.
bool may_use_cache(const Error& error, const HubOptions& options, bool has_list) {
  const bool refused = error.code == ErrorCode::kForbidden ||
                       error.code == ErrorCode::kUnauthenticated ||
                       error.code == ErrorCode::kNotFound;
  const bool unreachable = !has_list && error.code == ErrorCode::kUnavailable;
  return unreachable || (options.cached_will_do && !refused);
}

}  // namespace

Result<PulledModel> pull(const ModelName& name, const HubOptions& options, const PullHooks& hooks) {
  const Cache cache(options.cache, name.repository);
  const Result<PulledModel> current = from_cache(cache, name);
  const std::optional<PulledModel> cached =
      current.ok() ? std::optional(*current) : older_in_cache(cache, name);
  const auto use_cached = [&](const Error& why) -> Result<PulledModel> {
    hooks.on_note(fmt::format("{}. Using {} of the cache, commit {}", why.message,
                              current.ok() ? "the model" : "an older version", cached->commit));
    return *cached;
  };
  if (options.offline) {
    return current.ok() || !cached ? current : use_cached(current.error());
  }
  // Of a commit that another tool brought there may be more than is needed to start.
  if (current.ok() && is_commit(name.revision) &&
      (!name.file.empty() || cache.is_complete(name.revision, {}))) {
    return current;
  }
  if (const Status loaded = require_libcurl(); !loaded.ok()) {
    return cached && may_use_cache(loaded.error(), options, false) ? use_cached(loaded.error())
                                                                   : loaded.error();
  }
  Client client(options, name,
                {.stop = hooks.stop, .on_note = hooks.on_note, .on_bytes = [](int64_t) {}});
  const Result<FileList> list = client.list_files(current.ok() ? 1 : options.attempts);
  const Result<PulledModel> pulled =
      list.ok() ? ListedModel(name, options, hooks, cache, client, *list).bring()
                : Result<PulledModel>(list.error());
  if (pulled.ok() || !cached || hooks.stop() ||
      !may_use_cache(pulled.error(), options, list.ok())) {
    return pulled;
  }
  return use_cached(pulled.error());
}

}  // namespace tandem::hub
