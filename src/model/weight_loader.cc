#include "model/weight_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"
#include "kernels/quantize.h"
#include "model/finite.h"

namespace tandem::model {
namespace {

constexpr int64_t kTileBytes = int64_t{4} << 20;        // a tile stays in a shared cache
constexpr int64_t kReadAheadBytes = int64_t{64} << 20;  // asked of the disk ahead of the checkers
constexpr int32_t kMaxCheckers = 8;
constexpr size_t kTilesOnDevice = 2;  // one being packed, one waiting

// Rows of one tensor.
struct Tile {
  const WeightJob* job = nullptr;
  WeightSource::Tensor tensor;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t begin = 0;  // in the file
  int64_t end = 0;
  std::vector<float> values;     // of a vector: its padded values, kept until copied
  std::optional<Error> problem;  // set by the checker
  bool checked = false;
};

float source_value(const std::byte* data, ElementType type, int64_t index) {
  if (type == ElementType::kF32) {
    float value = 0.0F;
    std::memcpy(&value, data + index * 4, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, data + index * 2, 2);
  return type == ElementType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

// Threads that compute on the device, or the host's processors: no attention runs while weights
// load.
int32_t checkers_for(const device::Device& device) {
  const auto host = static_cast<int32_t>(device.host().cpus.size());
  return std::clamp(std::max(device.caps().threads, host), 1, kMaxCheckers);
}

bool one_group(const kernels::PaddedDim& dim) { return dim.group == dim.logical; }

void add_tiles(const WeightJob& job, const WeightSource::Tensor& tensor, std::vector<Tile>& tiles) {
  const TensorEntry& entry = *tensor.entry;
  const int64_t rows = job.n.logical;
  const int64_t row_bytes = entry.bytes() / rows;
  // A matrix is cut only where its columns in the packed target begin a panel.
  const int64_t unit = job.is_vector()    ? rows
                       : one_group(job.n) ? kernels::kPanelColumns
                                          : job.n.group;
  const int64_t step = std::max<int64_t>(kTileBytes / row_bytes / unit, 1) * unit;
  for (int64_t row = 0; row < rows; row += step) {
    Tile& tile = tiles.emplace_back();
    tile.job = &job;
    tile.tensor = tensor;
    tile.row_begin = row;
    tile.row_end = std::min(row + step, rows);
    tile.begin = entry.begin + tile.row_begin * row_bytes;
    tile.end = entry.begin + tile.row_end * row_bytes;
  }
}

std::vector<Tile> tiles_in_file_order(const WeightSource& source, std::span<const WeightJob> jobs) {
  std::vector<Tile> tiles;
  for (const WeightJob& job : jobs) {
    const WeightSource::Tensor* tensor = source.find(job.tensor);
    CHECK(tensor != nullptr && tensor->entry->type, "tensor {} was not checked", job.tensor);
    add_tiles(job, *tensor, tiles);
  }
  std::sort(tiles.begin(), tiles.end(), [](const Tile& a, const Tile& b) {
    return std::pair(a.tensor.file, a.begin) < std::pair(b.tensor.file, b.begin);
  });
  return tiles;
}

device::UploadOp upload_of(const Tile& tile, const std::byte* source) {
  const WeightJob& job = *tile.job;
  device::UploadOp upload;
  upload.source = source;
  upload.source_type = *tile.tensor.entry->type;
  upload.source_quantization = tile.tensor.entry->quantization;
  const int64_t rows = tile.row_end - tile.row_begin;
  if (one_group(job.n)) {
    upload.n = {rows, rows, kernels::round_up(rows, kernels::kPanelColumns)};
    upload.n_offset = job.n_offset + tile.row_begin;
  } else {
    upload.n = {rows, job.n.group, job.n.padded_group};
    upload.n_offset = job.n_offset + tile.row_begin / job.n.group * job.n.padded_group;
  }
  upload.k = job.k;
  upload.part = job.part;
  upload.target = job.target;
  upload.target_data = job.target_data;
  return upload;
}

class WeightLoader {
 public:
  WeightLoader(const WeightSource& source, std::vector<Tile> tiles, device::Device& device)
      : source_(source),
        tiles_(std::move(tiles)),
        device_(device),
        stream_(device.create_stream()),
        checker_count_(checkers_for(device)),
        window_(kTilesOnDevice + 2 * static_cast<size_t>(checker_count_)) {
    for (const Tile& tile : tiles_) {
      progress_.bytes_total += tile.end - tile.begin;
    }
  }

  ~WeightLoader() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& checker : checkers_) {
      checker.join();
    }
    while (!events_.empty()) {  // after an error the device may still read the sources
      finish_oldest();
    }
  }
  WeightLoader(const WeightLoader&) = delete;
  WeightLoader& operator=(const WeightLoader&) = delete;

  Status run(const std::function<void(const LoadProgress&)>& on_progress) {
    start_checkers();
    int64_t reported = 0;
    for (size_t i = 0; i < tiles_.size(); ++i) {
      wait_checked(i);
      if (tiles_[i].problem) {
        return *tiles_[i].problem;
      }
      if (const Error* failure = device_.failure()) {
        return *failure;
      }
      launch(tiles_[i]);
      if (events_.size() == kTilesOnDevice) {
        finish_oldest();
      }
      if (on_progress && (progress_.bytes_done - reported) * 200 > progress_.bytes_total) {
        reported = progress_.bytes_done;
        on_progress(progress_);
      }
    }
    while (!events_.empty()) {
      finish_oldest();
    }
    if (const Error* failure = device_.failure()) {
      return *failure;
    }
    if (on_progress) {
      on_progress(progress_);
    }
    return {};
  }

 private:
  void start_checkers() {
    try {
      for (int32_t i = 0; i < checker_count_; ++i) {
        checkers_.emplace_back([this] {
          while (const std::optional<size_t> index = claim_next()) {
            check_and_publish(*index);
          }
        });
      }
    } catch (const std::system_error&) {
      // No more threads to be had: the loading thread checks what the others do not.
    }
  }

  // Blocks until a tile may be checked; nullopt when there is none left.
  std::optional<size_t> claim_next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock,
                  [&] { return stop_ || next_ == tiles_.size() || next_ < finished_ + window_; });
    if (stop_ || next_ == tiles_.size()) {
      return std::nullopt;
    }
    return next_++;
  }

  void wait_checked(size_t index) {
    std::unique_lock lock(mutex_);
    if (next_ == index) {
      ++next_;
      lock.unlock();
      check_and_publish(index);
      return;
    }
    changed_.wait(lock, [&] { return tiles_[index].checked; });
  }

  void check_and_publish(size_t index) {
    std::optional<Error> problem = check(tiles_[index]);
    const std::lock_guard lock(mutex_);
    tiles_[index].problem = std::move(problem);
    tiles_[index].checked = true;
    changed_.notify_all();
  }

  [[nodiscard]] const std::byte* source_of(const Tile& tile) const {
    return source_.data(tile.tensor.file, tile.begin);
  }

  // Touches every byte of the tile for the first time. Any thread.
  [[nodiscard]] std::optional<Error> check(Tile& tile) const {
    const int32_t file = tile.tensor.file;
    const std::string_view file_name = source_.file_name(file);
    const TensorEntry& entry = *tile.tensor.entry;
    source_.will_need(file, tile.begin + kReadAheadBytes, tile.end + kReadAheadBytes);
    if (Status mapped = source_.load(file, tile.begin, tile.end); !mapped.ok()) {
      return Error{ErrorCode::kIo,
                   fmt::format("{}: tensor '{}' cannot be read: {}", file_name, entry.name,
                               mapped.error().message),
                   {}};
    }
    const std::byte* source = source_of(tile);
    if (entry.quantization != Quantization::kNone) {
      return check_groups(tile, source);
    }
    const int64_t elements = (tile.end - tile.begin) / element_bytes(*entry.type);
    const ElementType target =
        tile.job->is_vector() ? ElementType::kF32 : tile.job->target.format.type;
    if (const auto bad = find_not_finite(source, elements, *entry.type, target)) {
      const int64_t columns = tile.job->is_vector() ? 1 : tile.job->k.logical;
      return invalid_argument(fmt::format(
          "{}: tensor '{}': element {} is {}, which {} cannot hold as a number; the file is broken "
          "or the model diverged in training",
          file_name, entry.name, tile.row_begin * columns + *bad,
          source_value(source, *entry.type, *bad), element_name(target)));
    }
    if (tile.job->is_vector()) {
      const kernels::PaddedDim& dim = tile.job->n;
      tile.values.assign(static_cast<size_t>(dim.padded()), 0.0F);
      for (int64_t i = 0; i < dim.logical; ++i) {
        tile.values[static_cast<size_t>(i / dim.group * dim.padded_group + i % dim.group)] =
            source_value(source, *entry.type, i);
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<Error> check_groups(const Tile& tile, const std::byte* source) const {
    const int64_t groups = (tile.end - tile.begin) / int64_t{sizeof(kernels::QuantizedGroup)};
    const auto* first = reinterpret_cast<const kernels::QuantizedGroup*>(source);
    const auto* bad = std::find_if(first, first + groups, [](const auto& group) {
      constexpr uint16_t kInfinity = 0x7c00;  // and NaN above it
      return (group.scale & kInfinity) == kInfinity || (group.minimum & kInfinity) == kInfinity;
    });
    if (bad == first + groups) {
      return std::nullopt;
    }
    return invalid_argument(fmt::format(
        "{}: tensor '{}': the scale of the 32 elements from {} on is infinite, no number, or too "
        "large for fp16; the file is broken or the model diverged in training",
        source_.file_name(tile.tensor.file), tile.tensor.entry->name,
        tile.row_begin * tile.job->k.logical + (bad - first) * kQuantizedGroup));
  }

  void launch(const Tile& tile) {
    if (tile.job->is_vector()) {
      device_.launch(stream_,
                     device::CopyOp{.target = tile.job->target_data,
                                    .source = tile.values.data(),
                                    .bytes = static_cast<int64_t>(tile.values.size()) * 4});
    } else {
      device_.launch(stream_, upload_of(tile, source_of(tile)));
    }
    events_.push_back(device_.record(stream_));
  }

  // Tiles finish in order, so the file's pages up to the end of this one are done with.
  void finish_oldest() {
    device_.synchronize(events_.front());
    events_.erase(events_.begin());
    Tile& tile = tiles_[finished_];
    if (tile.tensor.file != released_file_) {
      released_file_ = tile.tensor.file;
      released_to_ = 0;
    }
    source_.release(tile.tensor.file, released_to_, tile.end);
    released_to_ = tile.end;
    progress_.bytes_done += tile.end - tile.begin;
    tile.values = {};
    {
      const std::lock_guard lock(mutex_);
      ++finished_;
    }
    changed_.notify_all();
  }

  const WeightSource& source_;
  std::vector<Tile> tiles_;  // a tile belongs to its checker until `checked`, then to the loader
  device::Device& device_;
  device::StreamId stream_;
  const int32_t checker_count_;
  const size_t window_;  // tiles that checkers may be ahead of the device
  std::vector<std::thread> checkers_;
  std::vector<device::EventId> events_;  // of tiles finished_, finished_ + 1, ...
  int32_t released_file_ = -1;
  int64_t released_to_ = 0;
  LoadProgress progress_;

  std::mutex mutex_;  // guards what follows and Tile::checked
  std::condition_variable changed_;
  size_t next_ = 0;      // first tile that nobody has claimed
  size_t finished_ = 0;  // tiles that the device is done with
  bool stop_ = false;
};

}  // namespace

Status copy_weights(const WeightSource& source, std::span<const WeightJob> jobs,
                    device::Device& device,
                    const std::function<void(const LoadProgress&)>& on_progress) {
  WeightLoader loader(source, tiles_in_file_order(source, jobs), device);
  return loader.run(on_progress);
}

}  // namespace tandem::model
