#include "device/cuda/prefill_trial.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "device/cuda/gpu_timer.h"

namespace tandem::device::cuda {
namespace {

constexpr int32_t kPageTokens = 32;
constexpr int64_t kPlanBytes = int64_t{1} << 20;
constexpr int64_t kGuardRows = 192;      // behind the results: the largest tile
constexpr size_t kRandomPiece = 499979;  // values that repeat; a prime, so that no pages are equal
constexpr int kRounds = 3;
constexpr int kRepeats = 4;  // calls that a round times together

struct Extent {
  int32_t rows = 0;
  int32_t context = 0;  // its rows are the last of these tokens
};

// The work of the trial's streams and memory.
class Trier {
 public:
  explicit Trier(const PrefillTrial& trial) : trial_(trial), piece_(kRandomPiece) {
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    std::ranges::generate(piece_, [&] { return f32_to_bf16(uniform(random_)); });
  }
  ~Trier() = default;
  Trier(const Trier&) = delete;
  Trier& operator=(const Trier&) = delete;

  PrefillTrialResult run();

 private:
  cudaError_t open();
  cudaError_t close();
  cudaError_t compare_short(PrefillTrialResult& result);
  cudaError_t time_prompts(PrefillTrialResult& result);
  // Lays out a problem in the room. False: it does not fit.
  bool place(int32_t heads, int32_t kv_heads, const std::vector<Extent>& extents);
  cudaError_t fill();
  cudaError_t compare(PrefillTrialResult& result);
  cudaError_t time(PrefillTrialResult::Timed& timed);
  cudaError_t attend(const flash::Kernels& kernels, BFloat16* out, int repeats, double& us);
  cudaError_t copy_values(BFloat16* target, int64_t count);

  template <class T>
  T* take(int64_t count) {
    used_ = (used_ + 255) / 256 * 256;
    T* taken = reinterpret_cast<T*>(trial_.room + used_);
    used_ += count * static_cast<int64_t>(sizeof(T));
    return taken;
  }
  template <class T>
  cudaError_t copy(T* target, const T* source, int64_t count) {
    return cudaMemcpyAsync(target, source, static_cast<size_t>(count) * sizeof(T),
                           cudaMemcpyDefault, stream_);
  }
  [[nodiscard]] int64_t columns() const { return int64_t{shape_.heads} * shape_.head_dim; }
  [[nodiscard]] int64_t out_count() const { return (rows_ + kGuardRows) * columns(); }

  const PrefillTrial& trial_;
  std::mt19937 random_{17};
  std::vector<BFloat16> piece_;
  cudaStream_t stream_ = nullptr;
  GpuTimer timer_;
  std::byte* pinned_ = nullptr;

  // The problem at hand.
  int64_t used_ = 0;
  flash::Shape shape_;
  int64_t rows_ = 0;
  int64_t kv_count_ = 0;
  std::vector<int32_t> numbers_;  // the sequences' numbers, then the pages'
  int32_t* numbers_on_device_ = nullptr;
  flash::Sequences on_host_;
  flash::Sequences on_device_;
  flash::Operands operands_;
  flash::Room room_;
  BFloat16* outs_[2] = {};
};

cudaError_t first_of(std::initializer_list<cudaError_t> errors) {
  const auto* found = std::ranges::find_if(errors, [](auto each) { return each != cudaSuccess; });
  return found == errors.end() ? cudaSuccess : *found;
}

cudaError_t Trier::open() {
  void* pinned = nullptr;
  const cudaError_t error =
      first_of({cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0),
                cudaHostAlloc(&pinned, kPlanBytes, cudaHostAllocPortable)});
  pinned_ = static_cast<std::byte*>(pinned);
  return error == cudaSuccess ? timer_.open(stream_, trial_.patience) : error;
}

cudaError_t Trier::close() {
  return first_of({cudaFreeHost(pinned_), timer_.close(), cudaStreamDestroy(stream_)});
}

bool Trier::place(int32_t heads, int32_t kv_heads, const std::vector<Extent>& extents) {
  used_ = 0;
  shape_ = {.heads = heads,
            .kv_heads = kv_heads,
            .head_dim = trial_.head_dim,
            .page_tokens = kPageTokens};
  const auto count = static_cast<int32_t>(extents.size());
  std::vector<int32_t> row_starts = {0};
  std::vector<int32_t> page_starts = {0};
  std::vector<int32_t> last_page_tokens;
  for (const Extent& extent : extents) {
    row_starts.push_back(row_starts.back() + extent.rows);
    page_starts.push_back(page_starts.back() + (extent.context + kPageTokens - 1) / kPageTokens);
    last_page_tokens.push_back((extent.context - 1) % kPageTokens + 1);
  }
  rows_ = row_starts.back();
  std::vector<int32_t> pages(static_cast<size_t>(page_starts.back()));
  std::iota(pages.begin(), pages.end(), 0);
  std::ranges::shuffle(pages, random_);
  numbers_.clear();
  for (const auto& each : {row_starts, page_starts, last_page_tokens, pages}) {
    numbers_.insert(numbers_.end(), each.begin(), each.end());
  }
  const int64_t half_page = int64_t{kv_heads} * kPageTokens * shape_.head_dim;
  kv_count_ = 2 * half_page * page_starts.back();
  numbers_on_device_ = take<int32_t>(static_cast<int64_t>(numbers_.size()));
  const auto sequences = [&](const int32_t* numbers) {
    return flash::Sequences{.count = count,
                            .rows = row_starts.back(),
                            .row_starts = numbers,
                            .page_starts = numbers + count + 1,
                            .last_page_tokens = numbers + 2 * (count + 1)};
  };
  on_host_ = sequences(numbers_.data());
  on_device_ = sequences(numbers_on_device_);
  auto* kv = take<BFloat16>(kv_count_);
  operands_ = {.q = take<BFloat16>(rows_ * columns()),
               .keys = kv,
               .values = kv + half_page,
               .page_stride = 2 * half_page,
               .pages = numbers_on_device_ + 3 * count + 2,
               .scale = 3.0F / std::sqrt(static_cast<float>(shape_.head_dim))};
  for (BFloat16*& out : outs_) {
    out = take<BFloat16>(out_count());
  }
  const int64_t partials = flash::partial_bytes(shape_.head_dim, heads);
  room_ = {.plan = take<std::byte>(kPlanBytes),
           .pinned_plan = pinned_,
           .plan_bytes = kPlanBytes,
           .partials = take<std::byte>(partials),
           .partial_bytes = partials};
  return used_ <= trial_.room_bytes;
}

cudaError_t Trier::copy_values(BFloat16* target, int64_t count) {
  cudaError_t error = cudaSuccess;
  for (int64_t begin = 0; begin < count && error == cudaSuccess; begin += kRandomPiece) {
    error = copy(target + begin, piece_.data(),
                 std::min(count - begin, static_cast<int64_t>(kRandomPiece)));
  }
  return error;
}

// The results are NaN before the kernels write them.
cudaError_t Trier::fill() {
  cudaError_t error = cudaSuccess;
  for (BFloat16* out : outs_) {
    if (error == cudaSuccess) {
      error = cudaMemset(out, 0xff, static_cast<size_t>(out_count()) * sizeof(BFloat16));
    }
  }
  if (error == cudaSuccess) {
    error = cudaDeviceSynchronize();
  }
  if (error == cudaSuccess) {
    error =
        first_of({copy(numbers_on_device_, numbers_.data(), static_cast<int64_t>(numbers_.size())),
                  copy_values(const_cast<BFloat16*>(operands_.keys), kv_count_),
                  copy_values(const_cast<BFloat16*>(operands_.q), rows_ * columns())});
  }
  return error;
}

cudaError_t Trier::attend(const flash::Kernels& kernels, BFloat16* out, int repeats, double& us) {
  flash::Plan plan{};
  flash::Operands operands = operands_;
  operands.out = out;
  cudaError_t error = kernels.plan_call(stream_, shape_, on_host_, room_, plan);
  if (error == cudaSuccess) {
    error = timer_.begin();
  }
  for (int i = 0; i < repeats && error == cudaSuccess; ++i) {
    error = kernels.run_call(stream_, shape_, on_device_, room_, plan, operands);
  }
  if (error == cudaSuccess) {
    error = timer_.end(us);
    us /= repeats;
  }
  return error;
}

// The distance of two vectors by the length of the first; infinite if it is NaN.
double distance(const BFloat16* a, const BFloat16* b, int64_t count) {
  double apart = 0;
  double length = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double x = bf16_to_f32(a[i]);
    const double y = bf16_to_f32(b[i]);
    apart += (x - y) * (x - y);
    length += x * x;
  }
  const double share = std::sqrt(apart / length);
  return std::isfinite(share) ? share : std::numeric_limits<double>::infinity();
}

// Runs both kernels and compares all that they wrote.
cudaError_t Trier::compare(PrefillTrialResult& result) {
  std::vector<BFloat16> usual(static_cast<size_t>(out_count()));
  std::vector<BFloat16> tried(usual.size());
  double us = 0;
  cudaError_t error = fill();
  if (error == cudaSuccess) {
    error = attend(trial_.usual, outs_[0], 1, us);
  }
  if (error == cudaSuccess) {
    error = attend(trial_.tried, outs_[1], 1, us);
  }
  if (error == cudaSuccess) {
    error = first_of({copy(usual.data(), outs_[0], out_count()),
                      copy(tried.data(), outs_[1], out_count()), timer_.wait()});
  }
  if (error != cudaSuccess) {
    return error;
  }
  const int64_t written = rows_ * columns();
  for (int64_t i = 0; i < written; i += shape_.head_dim) {
    result.difference =
        std::max(result.difference, distance(usual.data() + i, tried.data() + i, shape_.head_dim));
  }
  const bool guarded = std::all_of(tried.begin() + written, tried.end(),
                                   [](BFloat16 each) { return std::isnan(bf16_to_f32(each)); });
  if (!guarded) {
    result.difference = std::numeric_limits<double>::infinity();
  }
  return cudaSuccess;
}

// In turn, so that the GPU's clock is the same for both; the best of each counts.
cudaError_t Trier::time(PrefillTrialResult::Timed& timed) {
  cudaError_t error = cudaSuccess;
  for (int round = 0; round < kRounds && error == cudaSuccess; ++round) {
    double usual = 0;
    double tried = 0;
    error = attend(trial_.usual, outs_[0], kRepeats, usual);
    if (error == cudaSuccess) {
      error = attend(trial_.tried, outs_[1], kRepeats, tried);
    }
    timed.usual_us = round == 0 ? usual : std::min(timed.usual_us, usual);
    timed.tried_us = round == 0 ? tried : std::min(timed.tried_us, tried);
  }
  return error;
}

// Several tiles of both sizes, contexts of several tiles and of one, prompts and later chunks.
cudaError_t Trier::compare_short(PrefillTrialResult& result) {
  if (!place(4, 2, {{300, 300}, {40, 260}, {2, 97}, {64, 64}})) {
    return cudaErrorMemoryAllocation;
  }
  return compare(result);
}

cudaError_t Trier::time_prompts(PrefillTrialResult& result) {
  constexpr int32_t kHeads = 16;
  constexpr int32_t kKvHeads = 4;
  cudaError_t error = cudaSuccess;
  // Eighths of a tile for each multiprocessor. A chunk of 512 rows and 32 heads, with which an H100
  // is not quite full, is not too small; with fewer, its contexts should be divided.
  for (const int32_t eighths : {7, 16, 32}) {
    const int64_t rows = trial_.processors * flash::kTileRows * eighths / 8 / kHeads;
    const Extent prompt{static_cast<int32_t>(rows), static_cast<int32_t>(rows)};
    if (error != cudaSuccess || !result.agree() || !place(kHeads, kKvHeads, {prompt})) {
      break;
    }
    PrefillTrialResult::Timed timed{.row_heads = rows * kHeads};
    error = compare(result);
    if (error == cudaSuccess) {
      error = time(timed);
    }
    if (error == cudaSuccess) {
      result.timed.push_back(timed);
    }
  }
  return error;
}

// Whether an error has ended more than the call.
bool is_lost(cudaError_t error) {
  if (error == cudaErrorLaunchTimeout) {
    return true;
  }
  cudaGetLastError();  // forgets it, unless it is sticky
  size_t free = 0;
  size_t total = 0;
  return cudaMemGetInfo(&free, &total) != cudaSuccess;
}

PrefillTrialResult Trier::run() {
  PrefillTrialResult result;
  result.error = open();
  if (result.error == cudaSuccess) {
    result.error = compare_short(result);
  }
  if (result.error == cudaSuccess && result.agree() && trial_.timed) {
    result.error = time_prompts(result);
  }
  result.lost = result.error != cudaSuccess && is_lost(result.error);
  if (!result.lost && stream_ != nullptr) {
    const cudaError_t closed = close();
    result.error = result.error == cudaSuccess ? closed : result.error;
    result.lost = closed != cudaSuccess && is_lost(closed);
  }
  return result;
}

}  // namespace

int64_t PrefillTrialResult::pays_from() const {
  int64_t from = kNever;
  for (size_t i = timed.size(); i > 0; --i) {
    const Timed& each = timed[i - 1];
    if (each.tried_us * kMinGain > each.usual_us) {
      break;
    }
    from = each.row_heads;
  }
  return from;
}

PrefillTrialResult try_prefill(const PrefillTrial& trial) { return Trier(trial).run(); }

}  // namespace tandem::device::cuda
