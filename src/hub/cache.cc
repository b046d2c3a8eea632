#include "hub/cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "base/json_values.h"
#include "base/printable.h"
#include "hub/checksum.h"

namespace tandem::hub {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kMaxIndexBytes = int64_t{64} << 20;

std::string without_slashes(std::string_view path) {
  std::string name;
  for (const char c : path) {
    name += c == '/' ? std::string("--") : std::string(1, c);
  }
  return name;
}

// Empty if it cannot be read or is longer.
std::string read_small_file(const fs::path& path, int64_t max_bytes) {
  std::error_code ignored;
  const auto bytes = fs::file_size(path, ignored);
  if (ignored || bytes > static_cast<uintmax_t>(max_bytes)) {
    return {};
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Status make_folder(const fs::path& path) {
  std::error_code failure;
  fs::create_directories(path, failure);
  if (failure) {
    return disk_error("make the folder", path, failure.value());
  }
  return {};
}

// A name beside `path` that no other process and thread uses.
fs::path beside(const fs::path& path) {
  const auto thread = std::hash<std::thread::id>{}(std::this_thread::get_id());
  return path.parent_path() /
         fmt::format(".{}.{}.{:x}.tmp", path.filename().string(), ::getpid(), thread);
}

Status rename_over(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int cause = errno;
    ::unlink(from.c_str());
    return disk_error("rename a file to", to, cause);
  }
  return {};
}

// `place` is shown in errors.
Status make_link(const fs::path& target, const fs::path& made, const fs::path& place) {
  if (::symlink(target.c_str(), made.c_str()) != 0) {
    return disk_error("make a link (does this file system have them?) at", place, errno);
  }
  return {};
}

// Under another name first, so that no process sees a part.
Status write_file(const fs::path& place, std::string_view text) {
  RETURN_IF_ERROR(make_folder(place.parent_path()));
  const fs::path made = beside(place);
  const int file = ::open(made.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) {
    return disk_error("write", place, errno);
  }
  const bool written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int cause = errno;
  ::close(file);
  if (!written) {
    ::unlink(made.c_str());
    return disk_error("write", place, cause);
  }
  return rename_over(made, place);
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);  // follows links
}

std::vector<std::string> missing_weights(const fs::path& snapshot) {
  constexpr const char* kSingle = "model.safetensors";
  constexpr const char* kIndex = "model.safetensors.index.json";
  if (is_file(snapshot / kSingle)) {
    return {};
  }
  std::error_code ignored;
  if (!fs::is_symlink(snapshot / kIndex, ignored) && !is_file(snapshot / kIndex)) {
    return {kSingle};
  }
  const auto files = read_index(snapshot / kIndex);
  if (!files.ok()) {
    return {kIndex};
  }
  std::vector<std::string> missing = *files;
  std::erase_if(missing, [&](const std::string& file) { return is_file(snapshot / file); });
  return missing;
}

}  // namespace

Error disk_error(std::string_view doing, const fs::path& path, int cause) {
  const bool full = cause == ENOSPC || cause == EDQUOT;
  const bool too_long = cause == EFBIG;
  const bool denied = cause == EACCES || cause == EPERM || cause == EROFS;
  return {
      full || too_long ? ErrorCode::kResourceExhausted : ErrorCode::kIo,
      fmt::format("cannot {} '{}': {}{}", doing, printable(path.string()), std::strerror(cause),
                  full ? "; free some space and run the same command again: it goes on"
                  : too_long
                      ? "; raise the limit on the size of files (ulimit -f), or name a folder on "
                        "a file system without such a limit with --hub-cache or HF_HOME"
                  : denied ? "; name a folder that may be written with --hub-cache or HF_HOME"
                           : ""),
      "hub-cache"};
}

Error stopped_error() {
  return {ErrorCode::kUnavailable, "stopped; the same command goes on where this one ended", {}};
}

Cache::Cache(const fs::path& root, std::string_view repository)
    : root_(root), folder_(root / ("models--" + without_slashes(repository))) {}

fs::path Cache::blob(const std::string& checksum) const { return blobs() / checksum; }

fs::path Cache::incomplete(const std::string& checksum) const {
  return blobs() / (checksum + ".incomplete");
}

fs::path Cache::lock(const std::string& checksum) const {
  return root_ / ".locks" / folder_.filename() / (checksum + ".lock");
}

fs::path Cache::snapshot(const std::string& commit) const { return folder_ / "snapshots" / commit; }

std::optional<std::string> Cache::commit_of(const std::string& revision) const {
  if (is_commit(revision)) {
    return revision;
  }
  constexpr int64_t kMaxRefBytes = 100;
  std::string commit = read_small_file(folder_ / "refs" / revision, kMaxRefBytes);
  while (commit.ends_with('\n')) {
    commit.pop_back();
  }
  return is_commit(commit) ? std::optional(commit) : std::nullopt;
}

std::map<std::string, std::vector<std::string>> Cache::refs() const {
  std::map<std::string, std::vector<std::string>> refs;
  const fs::path folder = folder_ / "refs";
  std::error_code ignored;
  for (auto entry = fs::recursive_directory_iterator(folder, ignored);
       entry != fs::recursive_directory_iterator(); entry.increment(ignored)) {
    const std::string name = entry->path().lexically_relative(folder).string();
    if (!entry->is_regular_file(ignored) || name.ends_with(".tmp")) {
      continue;
    }
    if (const auto commit = commit_of(name)) {
      refs[*commit].push_back(name);
    }
  }
  for (auto& [commit, names] : refs) {
    std::ranges::sort(names);
  }
  return refs;
}

bool Cache::has_blob(const RemoteFile& file) const {
  std::error_code failure;
  const auto bytes = fs::file_size(blob(file.checksum), failure);
  return !failure && is_file(blob(file.checksum)) && file.size.has_value() &&
         bytes == static_cast<uintmax_t>(*file.size);
}

bool Cache::has_copy(const std::string& commit, const RemoteFile& file,
                     const std::function<bool()>& stop) const {
  const fs::path place = snapshot(commit) / file.path;
  std::error_code failure;
  if (fs::symlink_status(place, failure).type() != fs::file_type::regular || !file.size) {
    return false;
  }
  const auto bytes = fs::file_size(place, failure);
  return !failure && bytes == static_cast<uintmax_t>(*file.size) &&
         (is_complete(commit, {}) || is_complete(commit, file.path) ||
          has_checksum(place, file.checksum, stop));
}

fs::path Cache::mark(const std::string& commit, const std::string& file) const {
  return folder_ / ".tandem" / (file.empty() ? commit : commit + "--" + without_slashes(file));
}

bool Cache::is_complete(const std::string& commit, const std::string& file) const {
  return is_file(mark(commit, file));
}

Status Cache::make_folders() const {
  RETURN_IF_ERROR(make_folder(blobs()));
  RETURN_IF_ERROR(make_folder(folder_ / "snapshots"));
  RETURN_IF_ERROR(make_folder(folder_ / "refs"));
  RETURN_IF_ERROR(make_folder(lock("x").parent_path()));
  const fs::path probe = beside(blobs() / "link");
  RETURN_IF_ERROR(make_link("a", probe, probe));
  ::unlink(probe.c_str());
  return {};
}

Status Cache::link(const std::string& commit, const RemoteFile& file) const {
  const fs::path place = snapshot(commit) / file.path;
  std::error_code failure;
  if (fs::equivalent(place, blob(file.checksum), failure)) {
    return {};
  }
  RETURN_IF_ERROR(make_folder(place.parent_path()));
  const fs::path made = beside(place);
  RETURN_IF_ERROR(make_link(fs::path(blob(file.checksum)).lexically_relative(place.parent_path()),
                            made, place));
  return rename_over(made, place);
}

Status Cache::write_ref(const std::string& revision, const std::string& commit) const {
  if (revision == commit || commit_of(revision) == commit) {
    return {};
  }
  return write_file(folder_ / "refs" / revision, commit);
}

void Cache::mark_complete(const std::string& commit, const std::string& file) const {
  if (!is_complete(commit, file)) {
    (void)write_file(mark(commit, file), {});
  }
}

Result<std::vector<std::string>> read_index(const fs::path& path) {
  return files_of_index(read_small_file(path, kMaxIndexBytes));
}

Result<std::vector<std::string>> files_of_index(std::string_view text) {
  constexpr int32_t kMaxIndexNesting = 8;
  const auto wrong = [](std::string_view why) {
    return invalid_argument(fmt::format("model.safetensors.index.json: {}", why), "model");
  };
  if (json_nests_deeper(text, kMaxIndexNesting)) {
    return wrong("it nests too deep");
  }
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return wrong("it is not a JSON object");
  }
  const nlohmann::json* map = json_member(json, "weight_map");
  if (map == nullptr || !map->is_object() || map->empty()) {
    return wrong("it has no weight_map");
  }
  std::set<std::string> files;
  for (const nlohmann::json& file : *map) {
    if (!file.is_string() || !is_safe_path(file.get_ref<const std::string&>())) {
      return wrong("its weight_map names what cannot be a file of the model");
    }
    files.insert(file.get<std::string>());
  }
  return std::vector<std::string>(files.begin(), files.end());
}

std::vector<std::string> missing_files(const fs::path& snapshot, const std::string& file) {
  std::vector<std::string> missing;
  if (!file.empty()) {
    for (const std::string& part : gguf_parts(file)) {
      if (!is_file(snapshot / part)) {
        missing.push_back(part);
      }
    }
    return missing;
  }
  if (!is_file(snapshot / "config.json")) {
    missing.emplace_back("config.json");
  }
  if (!is_file(snapshot / "tokenizer.json") && !is_file(snapshot / "tokenizer.model")) {
    missing.emplace_back("tokenizer.json");
  }
  for (std::string& weights : missing_weights(snapshot)) {
    missing.push_back(std::move(weights));
  }
  // Links to nothing: begun by another tool, or their blobs were deleted.
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(snapshot, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool is_json = name.ends_with(".json") || name.ends_with(".jinja");
    if (is_json && entry.is_symlink(ignored) && !is_file(entry.path()) &&
        std::ranges::find(missing, name) == missing.end()) {
      missing.push_back(name);
    }
  }
  return missing;
}

bool has_no_locks(int cause) {
  return cause == ENOSYS || cause == ENOLCK || cause == EOPNOTSUPP || cause == ENOTSUP;
}

Result<FileLock> FileLock::take(const fs::path& path, const std::function<bool()>& stop,
                                const std::function<void(std::string_view)>& on_note) {
  constexpr auto kPause = std::chrono::milliseconds(50);
  bool waited = false;
  while (true) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0) {
      return disk_error("open", path, errno);
    }
    FileLock lock(descriptor);
    while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
      if (has_no_locks(errno)) {
        on_note("this file system has no locks; going on without one");
        return lock;
      }
      if (errno != EWOULDBLOCK && errno != EINTR) {
        return disk_error("lock", path, errno);
      }
      if (stop()) {
        return stopped_error();
      }
      if (!std::exchange(waited, true)) {
        on_note("another process downloads it; waiting");
      }
      std::this_thread::sleep_for(kPause);
    }
    // Its last holder may have removed the file, as some tools do: then the lock is of no use.
    struct stat held {};
    struct stat named {};
    if (::fstat(descriptor, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
        held.st_ino == named.st_ino && held.st_dev == named.st_dev) {
      return lock;
    }
    if (stop()) {
      return stopped_error();
    }
  }
}

FileLock::FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FileLock::~FileLock() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

}  // namespace tandem::hub
