#include "model/weight_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "base/units.h"
#include "kernels/gemm.h"

namespace tandem::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr unsigned kMaxThreads = 16;

Error write_error(const fs::path& file, int code) {
  const bool full = code == ENOSPC || code == EDQUOT || code == EFBIG;
  return Error{
      full ? ErrorCode::kResourceExhausted : ErrorCode::kIo,
      fmt::format("{}: cannot be written: {}{}", file.string(),
                  std::generic_category().message(code),
                  full ? "; free some room, or make a smaller model or choose another disk" : ""),
      {}};
}

// Owns a descriptor of a new file.
class OutputFile {
 public:
  OutputFile() = default;
  ~OutputFile() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }
  OutputFile(OutputFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  OutputFile& operator=(OutputFile&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  // Reserves all of `bytes`, so that a full disk shows before the work is done. 0 or errno.
  int create(const fs::path& file, int64_t bytes) {
    descriptor_ = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor_ < 0) {
      return errno;
    }
    if (bytes > 0 && ::fallocate(descriptor_, 0, 0, bytes) != 0) {
      return errno == EOPNOTSUPP || errno == ENOSYS ? 0 : errno;
    }
    return 0;
  }

  [[nodiscard]] int write_at(int64_t offset, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
      if (written < 0 && errno != EINTR) {
        return errno;
      }
      const auto count = static_cast<size_t>(std::max<ssize_t>(written, 0));
      bytes = bytes.subspan(count);
      offset += static_cast<int64_t>(count);
    }
    return 0;
  }

 private:
  int descriptor_ = -1;
};

struct Shard {
  std::string name;
  std::vector<size_t> tensors;
  int64_t bytes = 0;  // of the tensors
};

int64_t tensor_bytes(const RandomWeight& tensor, ElementType type) {
  int64_t bytes = element_bytes(type);
  for (const int64_t dimension : tensor.shape) {
    bytes *= dimension;
  }
  return bytes;
}

std::vector<Shard> divide(const RandomWeights& weights) {
  std::vector<Shard> shards(1);
  for (size_t i = 0; i < weights.tensors.size(); ++i) {
    const int64_t bytes = tensor_bytes(weights.tensors[i], weights.type);
    if (!shards.back().tensors.empty() && shards.back().bytes + bytes > weights.shard_bytes) {
      shards.emplace_back();
    }
    shards.back().tensors.push_back(i);
    shards.back().bytes += bytes;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].name = shards.size() == 1
                         ? "model.safetensors"
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
  return shards;
}

// Length and JSON, padded with spaces so that the data begins on a cache line.
std::string header_text(const Shard& shard, const RandomWeights& weights) {
  ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  const char* dtype = weights.type == ElementType::kF32    ? "F32"
                      : weights.type == ElementType::kBF16 ? "BF16"
                                                           : "F16";
  int64_t offset = 0;
  for (const size_t index : shard.tensors) {
    const RandomWeight& tensor = weights.tensors[index];
    const int64_t end = offset + tensor_bytes(tensor, weights.type);
    header[tensor.name] = {
        {"dtype", dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string json = header.dump();
  json.resize(static_cast<size_t>(kernels::round_up(static_cast<int64_t>(json.size()) + 8, 64) - 8),
              ' ');
  std::string text;
  for (int i = 0; i < 8; ++i) {
    text += static_cast<char>(json.size() >> (8 * i) & 0xff);
  }
  return text + json;
}

std::string index_text(const std::vector<Shard>& shards, const RandomWeights& weights) {
  ordered_json map = ordered_json::object();
  int64_t total_bytes = 0;
  for (const Shard& shard : shards) {
    total_bytes += shard.bytes;
    for (const size_t index : shard.tensors) {
      map[weights.tensors[index].name] = shard.name;
    }
  }
  const ordered_json index = {{"metadata", {{"total_size", total_bytes}}},
                              {"weight_map", std::move(map)}};
  return index.dump(1);
}

// One chunk of one tensor.
struct Task {
  const RandomTensor* tensor = nullptr;
  const OutputFile* file = nullptr;
  size_t shard = 0;
  int64_t chunk = 0;
  int64_t offset = 0;  // in the file
  int64_t bytes = 0;
};

// Threads take tasks until none is left or one fails; the calling thread works too, and reports.
class Writing {
 public:
  explicit Writing(std::vector<Task> tasks) : tasks_(std::move(tasks)) {
    for (const Task& task : tasks_) {
      total_bytes_ += task.bytes;
    }
  }

  // The failed task and its errno, or nullopt.
  std::optional<std::pair<Task, int>> run(
      const std::function<void(const LoadProgress&)>& on_progress) {
    std::vector<std::thread> threads;
    const unsigned wanted = std::clamp(std::thread::hardware_concurrency(), 1U, kMaxThreads);
    try {
      for (unsigned i = 1; i < wanted; ++i) {
        threads.emplace_back([this] { work({}); });
      }
    } catch (const std::system_error&) {
      // Fewer threads: slower, not wrong.
    }
    work(on_progress);
    for (std::thread& thread : threads) {
      thread.join();
    }
    if (on_progress) {
      on_progress({done_bytes_, total_bytes_});
    }
    const int code = failure_;
    return code == 0 ? std::nullopt : std::optional(std::pair(tasks_[failed_], code));
  }

 private:
  void work(const std::function<void(const LoadProgress&)>& on_progress) {
    std::vector<std::byte> buffer;
    int64_t reported = 0;
    while (failure_ == 0) {
      const size_t index = next_++;
      if (index >= tasks_.size()) {
        return;
      }
      const Task& task = tasks_[index];
      buffer.resize(static_cast<size_t>(task.bytes));
      task.tensor->fill_chunk(task.chunk, buffer);
      const int code = task.file->write_at(task.offset, buffer);
      int none = 0;
      if (code != 0 && failure_.compare_exchange_strong(none, code)) {
        failed_ = index;
      }
      done_bytes_ += task.bytes;
      if (on_progress && (done_bytes_ - reported) * 200 > total_bytes_) {
        reported = done_bytes_;
        on_progress({done_bytes_, total_bytes_});
      }
    }
  }

  std::vector<Task> tasks_;
  int64_t total_bytes_ = 0;
  std::atomic<size_t> next_ = 0;
  std::atomic<int64_t> done_bytes_ = 0;
  std::atomic<int> failure_ = 0;  // errno of the first failed write
  size_t failed_ = 0;             // its task; written once, by whoever set failure_
};

}  // namespace

Status write_text_file(const fs::path& file, const std::string& text) {
  OutputFile output;
  int code = output.create(file, 0);
  if (code == 0) {
    code = output.write_at(0, std::as_bytes(std::span(text)));
  }
  return code == 0 ? Status() : write_error(file, code);
}

Status write_random_weights(const RandomWeights& weights, const fs::path& folder,
                            const std::function<void(const LoadProgress&)>& on_progress) {
  const std::vector<Shard> shards = divide(weights);
  std::vector<OutputFile> files(shards.size());
  std::vector<RandomTensor> tensors;
  for (const RandomWeight& tensor : weights.tensors) {
    tensors.emplace_back(weights.seed, tensor.name, tensor.distribution, weights.type);
  }
  std::vector<Task> tasks;
  const int64_t chunk_bytes = kRandomChunkElements * element_bytes(weights.type);
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string header = header_text(shards[i], weights);
    int64_t offset = static_cast<int64_t>(header.size());
    int code = files[i].create(folder / shards[i].name, offset + shards[i].bytes);
    if (code == 0) {
      code = files[i].write_at(0, std::as_bytes(std::span(header)));
    }
    if (code != 0) {
      return write_error(folder / shards[i].name, code);
    }
    for (const size_t index : shards[i].tensors) {
      const int64_t bytes = tensor_bytes(weights.tensors[index], weights.type);
      for (int64_t begin = 0; begin < bytes; begin += chunk_bytes) {
        tasks.push_back({&tensors[index], &files[i], i, begin / chunk_bytes, offset + begin,
                         std::min(chunk_bytes, bytes - begin)});
      }
      offset += bytes;
    }
  }
  if (const auto failed = Writing(std::move(tasks)).run(on_progress)) {
    return write_error(folder / shards[failed->first.shard].name, failed->second);
  }
  if (shards.size() > 1) {
    return write_text_file(folder / "model.safetensors.index.json", index_text(shards, weights));
  }
  return {};
}

}  // namespace tandem::model
