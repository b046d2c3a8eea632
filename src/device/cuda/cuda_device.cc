#include "device/cuda/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/units.h"
#include "device/cpu/machine.h"
#include "device/cuda/cuda_formats.h"
#include "device/cuda/cuda_ops.h"
#include "device/cuda/cuda_streams.h"
#include "device/cuda/gpu_health.h"
#include "device/cuda/gpu_sensors.h"
#include "device/cuda/library_products.h"
#include "device/cuda/pinned_memory.h"
#include "device/cuda/prefill_choice.h"
#include "device/cuda/probe.h"
#include "device/cuda/reservation.h"

namespace tandem::device::cuda {
namespace {

std::string variable(const char* name) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing sets it
  return text == nullptr ? "" : text;
}

const char* flag_of(MemoryKind kind) {
  return kind == MemoryKind::kDevice ? "device-memory" : "host-memory";
}
const char* name_of(MemoryKind kind) { return kind == MemoryKind::kDevice ? "GPU" : "pinned host"; }

// Memory of one tier, taken from CUDA once; what is handed out keeps it.
class Tier {
 public:
  // `pinned`: of the host's tier, the owner of its memory.
  Tier(std::shared_ptr<GpuHealth> health, std::byte* begin, int64_t capacity,
       std::unique_ptr<PinnedMemory> pinned)
      : health_(std::move(health)),
        begin_(begin),
        pinned_(std::move(pinned)),
        pieces_(begin, capacity),
        dirty_end_(pinned_ != nullptr && pinned_->is_zeroed() ? begin
                                                              : begin + room_for(capacity, 0)) {}
  ~Tier() {
    if (!health_->failed()) {
      health_->ok(pinned_ == nullptr ? cudaFree(begin_) : pinned_->end(), "freeing memory");
    }
  }
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  // Bytes to ask CUDA for: `bytes` in pieces and `own_bytes` behind them.
  static int64_t room_for(int64_t bytes, int64_t own_bytes) {
    return Reservation::room_for(bytes) + own_bytes;
  }
  static Result<std::shared_ptr<Tier>> take(std::shared_ptr<GpuHealth> health, int device,
                                            MemoryKind kind, int64_t bytes, int64_t own_bytes) {
    const int64_t room = room_for(bytes, own_bytes);
    void* begin = nullptr;
    std::unique_ptr<PinnedMemory> pinned;
    cudaError_t error = cudaSuccess;
    if (kind == MemoryKind::kDevice) {
      error = cudaMalloc(&begin, static_cast<size_t>(room));
    } else {
      pinned = std::make_unique<PinnedMemory>();
      error = pinned->take(device, room);
      begin = pinned->begin();
    }
    if (error == cudaSuccess) {
      return std::make_shared<Tier>(std::move(health), static_cast<std::byte*>(begin), bytes,
                                    std::move(pinned));
    }
    if (error != cudaErrorMemoryAllocation) {
      health->ok(error, "taking memory");
      return *health->failure();
    }
    cudaGetLastError();  // a later launch must not find this error
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("{} of {} memory are not to be had ({} with the back end's own "
                             "needs): {}{}; use a smaller --{}",
                             format_bytes(bytes), name_of(kind), format_bytes(room),
                             cudaGetErrorString(error), free_text(kind), flag_of(kind)),
                 flag_of(kind)};
  }

  Reservation& pieces() { return pieces_; }
  [[nodiscard]] std::byte* begin() const { return begin_; }
  // Bytes at the start of a new piece that may not be zeros.
  int64_t dirty_bytes(std::byte* data, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    const int64_t dirty = std::clamp<int64_t>(dirty_end_ - data, 0, bytes);
    dirty_end_ = std::max(dirty_end_, data + bytes);
    return dirty;
  }
  [[nodiscard]] std::byte* own() const {
    return begin() + Reservation::room_for(pieces_.capacity());
  }

 private:
  static std::string free_text(MemoryKind kind) {
    size_t free = 0;
    size_t total = 0;
    if (kind == MemoryKind::kHostPinned) {
      return ", or the limit of locked memory (ulimit -l) is too low";
    }
    return cudaMemGetInfo(&free, &total) == cudaSuccess
               ? fmt::format(", {} of {} are free now", format_bytes(static_cast<int64_t>(free)),
                             format_bytes(static_cast<int64_t>(total)))
               : "";
  }

  const std::shared_ptr<GpuHealth> health_;
  std::byte* const begin_;
  const std::unique_ptr<PinnedMemory> pinned_;  // null: the GPU's memory
  Reservation pieces_;
  std::mutex mutex_;      // guards dirty_end_
  std::byte* dirty_end_;  // behind it are zeros
};

class Piece final : public Memory {
 public:
  Piece(std::shared_ptr<Tier> tier, std::byte* data, int64_t bytes)
      : tier_(std::move(tier)), data_(data), bytes_(bytes) {}
  ~Piece() override { tier_->pieces().give_back(data_, bytes_); }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;
  [[nodiscard]] std::byte* data() const override { return data_; }
  [[nodiscard]] int64_t bytes() const override { return bytes_; }

 private:
  const std::shared_ptr<Tier> tier_;
  std::byte* const data_;
  const int64_t bytes_;
};

cudaError_t clear(MemoryKind kind, std::byte* data, int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  if (kind == MemoryKind::kHostPinned) {
    std::memset(data, 0, size);
    return cudaSuccess;
  }
  const cudaError_t error = cudaMemset(data, 0, size);
  return error == cudaSuccess ? cudaDeviceSynchronize() : error;
}

// Chooses the algorithms of products.
class ProductTuning final : public Tuning {
 public:
  explicit ProductTuning(CudaStreams& streams) : streams_(streams) {}
  void begin() override { streams_.note_products(); }
  Result<std::vector<TunedChoice>> end(Nanos limit) override { return streams_.tune(limit); }
  void use(std::span<const TunedChoice> choices) override { streams_.use(choices); }

 private:
  CudaStreams& streams_;
};

constexpr std::string_view kTaking = "taking memory";

class CudaDevice final : public Device {
 public:
  // `host` null: pinned memory is taken piece by piece.
  CudaDevice(AcceleratorCaps caps, HostCaps host_caps, int index, const Formats& formats,
             std::shared_ptr<GpuHealth> health, std::shared_ptr<Tier> device,
             std::shared_ptr<Tier> host, Libraries libraries, observe::Timeline* timeline)
      : caps_(std::move(caps)),
        host_(std::move(host_caps)),
        index_(index),
        formats_(formats),
        health_(std::move(health)),
        device_memory_(std::move(device)),
        host_memory_(std::move(host)),
        sensors_(index),
        streams_(index, *health_, device_memory_->own(), std::move(libraries), timeline) {}

  [[nodiscard]] const AcceleratorCaps& caps() const override { return caps_; }
  [[nodiscard]] const HostCaps& host() const override { return host_; }
  [[nodiscard]] const Formats& formats() const override { return formats_; }
  [[nodiscard]] const Error* failure() const override { return health_->failure(); }
  [[nodiscard]] observe::AcceleratorReadings readings() const override {
    return sensors_.readings();
  }

  [[nodiscard]] Tuning* tuning() override { return streams_.tunes() ? &tuning_ : nullptr; }

  // That NVML is used if a variable names its file.
  [[nodiscard]] Status check_sensors() const {
    if (sensors_.absent().empty() || variable(GpuSensors::kSensorsVariable).empty()) {
      return {};
    }
    return Error{ErrorCode::kUnavailable,
                 fmt::format("NVML cannot be used: {}; correct {}, or leave it out to look for "
                             "the driver's",
                             sensors_.absent(), GpuSensors::kSensorsVariable),
                 GpuSensors::kSensorsVariable};
  }

  using Device::allocate;
  [[nodiscard]] Result<std::unique_ptr<Memory>> allocate(const MemoryRequest& request) override {
    if (request.bytes < 0) {
      return invalid_argument(fmt::format("cannot allocate {} bytes", request.bytes));
    }
    if (failure() != nullptr || !streams_.note(cudaSetDevice(index_), kTaking)) {
      return *failure();
    }
    const bool on_device = request.kind == MemoryKind::kDevice;
    std::shared_ptr<Tier> tier = on_device ? device_memory_ : host_memory_;
    if (tier == nullptr) {
      ASSIGN_OR_RETURN(tier, Tier::take(health_, index_, request.kind, request.bytes, 0));
    }
    const std::optional<std::byte*> data = tier->pieces().take(request.bytes);
    if (!data.has_value()) {
      return Error{
          ErrorCode::kResourceExhausted,
          fmt::format("{} of {} memory do not fit: {} of {} are left; give more with --{}, or use "
                      "a smaller model or KV pool",
                      format_bytes(request.bytes), name_of(request.kind),
                      format_bytes(tier->pieces().left()), format_bytes(tier->pieces().capacity()),
                      flag_of(request.kind)),
          flag_of(request.kind)};
    }
    if (!streams_.note(clear(request.kind, *data, tier->dirty_bytes(*data, request.bytes)),
                       kTaking)) {
      tier->pieces().give_back(*data, request.bytes);
      return *failure();
    }
    return std::unique_ptr<Memory>(std::make_unique<Piece>(std::move(tier), *data, request.bytes));
  }

  StreamId create_stream(StreamKind kind) override { return streams_.add(kind); }
  void launch(StreamId stream, const Op& op) override { streams_.launch(stream, op); }
  EventId record(StreamId stream) override { return streams_.record(stream, true); }
  EventId record_polled(StreamId stream) override { return streams_.record(stream, false); }
  void wait(StreamId stream, EventId event) override { streams_.wait(stream, event); }
  [[nodiscard]] bool query(EventId event) const override { return streams_.query(event); }
  void synchronize(EventId event) override { streams_.synchronize(event); }
  void set_listener(std::function<void()> on_event) override {
    streams_.set_listener(std::move(on_event));
  }

 private:
  const AcceleratorCaps caps_;
  const HostCaps host_;
  const int index_;
  const Formats& formats_;
  const std::shared_ptr<GpuHealth> health_;
  const std::shared_ptr<Tier> device_memory_;
  const std::shared_ptr<Tier> host_memory_;
  const GpuSensors sensors_;
  CudaStreams streams_;  // behind all memory: their work uses it
  ProductTuning tuning_{streams_};
};

// Those for attention on the host: within the quota, and all but two, for the engine and the pump,
// where that leaves most of them.
std::vector<int32_t> attention_cpus() {
  constexpr size_t kFew = 4;
  std::vector<int32_t> cpus = allowed_cpus();
  const int32_t quota = quota_cpus(static_cast<int32_t>(cpus.size()));
  cpus.resize(std::min(cpus.size(), static_cast<size_t>(std::max(quota, 1))));
  if (cpus.size() > kFew) {
    cpus.resize(cpus.size() - 2);
  }
  return cpus;
}

HostCaps host_caps(const DeviceSpec& spec) {
  return {.isa = spec.cpu.isa.has_value() ? spec.cpu.isa->isa : kernels::available_isas().back(),
          .pinned_bytes = spec.host_memory_bytes,
          .cpus = attention_cpus()};
}

// The libraries, and in words which computes products or why none does.
struct Found {
  Libraries libraries;
  std::string products_words;
  [[nodiscard]] std::string kernels() const {
    return std::string(libraries.products == nullptr ? "cuda-plain" : "cuda-cublaslt") +
           (libraries.attention ? "-flashinfer" : "");
  }
  [[nodiscard]] std::string products() const {
    return products_words + (libraries.timed_algorithms ? ", timed algorithms" : "") +
           (libraries.products != nullptr && variable(kDepthVariable) == "whole" ? ", whole depth"
                                                                                 : "");
  }
  [[nodiscard]] std::string attention() const {
    return std::string(libraries.attention ? "FlashInfer" : "plain attention") +
           (libraries.graphs ? ", graphs of layers" : "");
  }
};

// The kernels for prompts that the user asks for.
std::string asked_prefill() {
  const std::string wanted = variable(kPrefillVariable);
  return wanted.empty() || wanted == "ampere" ? "" : fmt::format(", prompts: {}", wanted);
}

Result<bool> find_attention() {
  const std::string wanted = variable(kAttentionVariable);
  const bool built = flash::serves(64);
  if (wanted.empty() || wanted == "auto") {
    return built;
  }
  if (wanted == "flashinfer" && !built) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("{}=flashinfer: this build has not got FlashInfer's kernels; run "
                             "tools/gpu/install_nvcc.sh and build again",
                             kAttentionVariable),
                 kAttentionVariable};
  }
  if (wanted == "flashinfer" || wanted == "plain") {
    return wanted == "flashinfer";
  }
  return invalid_argument(
      fmt::format("{}={}: give auto (FlashInfer's kernels if the build has them), plain or "
                  "flashinfer",
                  kAttentionVariable, wanted),
      kAttentionVariable);
}

Result<Found> find_products() {
  const std::string wanted = variable(kProductsVariable);
  if (!wanted.empty() && wanted != "auto" && wanted != "plain" && wanted != "library") {
    return invalid_argument(
        fmt::format("{}={}: give auto (cuBLASLt if it is found), plain or library",
                    kProductsVariable, wanted),
        kProductsVariable);
  }
  if (wanted == "plain") {
    return Found{{}, "plain kernels"};
  }
  const std::string file = variable(kLibraryVariable);
  Result<std::unique_ptr<CublasLt>> library =
      CublasLt::open(file.empty() ? cublaslt_files() : std::vector{file});
  if (library.ok()) {
    std::string name = fmt::format("cuBLASLt {}", (*library)->version());
    return Found{{.products = std::make_unique<LibraryProducts>(
                      std::move(library).value(), variable(kAlgorithmsVariable) == "timed")},
                 std::move(name)};
  }
  if (wanted == "library" || !file.empty()) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("cuBLASLt cannot be used: {}; install the library of CUDA 13 (in a "
                             "Python environment: pip install nvidia-cublas), name its file with "
                             "{}, or set {}=plain",
                             library.error().message, kLibraryVariable, kProductsVariable),
                 kLibraryVariable};
  }
  return Found{{}, fmt::format("plain kernels, no cuBLASLt: {}", library.error().message)};
}

Result<ElementType> residual_type() {
  const std::string wanted = variable(kResidualVariable);
  if (wanted.empty() || wanted == element_name(ElementType::kF32)) {
    return ElementType::kF32;
  }
  if (wanted == element_name(ElementType::kBF16)) {
    return ElementType::kBF16;
  }
  return invalid_argument(fmt::format("{}={}: give float32 or bfloat16", kResidualVariable, wanted),
                          kResidualVariable);
}

// That a variable has no value or either of these.
Status check_variable(const char* name, std::string_view usual, std::string_view other) {
  const std::string wanted = variable(name);
  if (wanted.empty() || wanted == usual || wanted == other) {
    return {};
  }
  return invalid_argument(fmt::format("{}={}: give {} or {}", name, wanted, usual, other), name);
}

}  // namespace

Result<std::unique_ptr<Device>> make_cuda_device(const DeviceSpec& spec) {
  ASSIGN_OR_RETURN(const int index,
                   gpu_index(spec.accelerator.has_value() ? spec.accelerator->options : ""));
  ASSIGN_OR_RETURN(const Gpu gpu, probe(index));
  ASSIGN_OR_RETURN(Found found, find_products());
  ASSIGN_OR_RETURN(found.libraries.attention, find_attention());
  ASSIGN_OR_RETURN(const ElementType residual, residual_type());
  RETURN_IF_ERROR(check_variable(kKernelsVariable, "fast", "plain"));
  RETURN_IF_ERROR(check_variable(kDepthVariable, "auto", "whole"));
  RETURN_IF_ERROR(check_variable(kGraphsVariable, "off", "layers"));
  RETURN_IF_ERROR(check_variable(kAlgorithmsVariable, "first", "timed"));
  found.libraries.timed_algorithms =
      variable(kAlgorithmsVariable) == "timed" && found.libraries.products != nullptr;
  found.libraries.graphs = variable(kGraphsVariable) == "layers" && spec.timeline == nullptr;
  const int64_t own = CudaStreams::own_bytes(found.libraries);
  const int64_t beside = Tier::room_for(0, own);
  const int64_t bytes =
      spec.device_memory_bytes > 0
          ? spec.device_memory_bytes
          : static_cast<int64_t>(kMemoryShare * static_cast<double>(gpu.free_bytes)) - beside;
  if (bytes <= 0 || Tier::room_for(bytes, own) > gpu.free_bytes) {
    return Error{
        ErrorCode::kResourceExhausted,
        fmt::format("{} of GPU memory are asked for, and the back end needs {} beside; {} "
                    "has {} free of {}; use a smaller --device-memory, or end the "
                    "processes that nvidia-smi lists",
                    format_bytes(std::max<int64_t>(bytes, 0)), format_bytes(beside), gpu.name,
                    format_bytes(gpu.free_bytes), format_bytes(gpu.memory_bytes)),
        "device-memory"};
  }
  const auto health = std::make_shared<GpuHealth>();
  ASSIGN_OR_RETURN(std::shared_ptr<Tier> device,
                   Tier::take(health, index, MemoryKind::kDevice, bytes, own));
  std::shared_ptr<Tier> host;
  if (spec.host_memory_bytes > 0) {
    ASSIGN_OR_RETURN(host,
                     Tier::take(health, index, MemoryKind::kHostPinned, spec.host_memory_bytes, 0));
  }
  ASSIGN_OR_RETURN(found.libraries.prefill,
                   choose_prefill({.gpu = gpu,
                                   .flashinfer = found.libraries.attention,
                                   .room = device->begin(),
                                   .room_bytes = device->pieces().capacity()},
                                  *health));
  const char* const prompts = found.libraries.prefill.any() ? ", prompts by Hopper's kernels" : "";
  AcceleratorCaps caps{
      .name = fmt::format("cuda:{} ({}, sm_{}{}, {} of {}, {}, {}{})", index, gpu.name, gpu.major,
                          gpu.minor, format_bytes(bytes), format_bytes(gpu.memory_bytes),
                          found.products_words, found.attention(), prompts),
      .backend = "cuda",
      // Without the result of the trial for prompts, which may differ at the next start.
      .identity =
          fmt::format("cuda ({}, {}, {}{})", gpu.name,
                      found.libraries.products == nullptr ? "plain kernels" : found.products(),
                      found.attention(), asked_prefill()),
      .kernels = found.kernels(),
      .memory_bytes = gpu.memory_bytes,
      .free_memory_bytes = device->pieces().capacity()};
  auto made = std::make_unique<CudaDevice>(
      std::move(caps), host_caps(spec), index, cuda_formats(residual, found.libraries.attention),
      health, std::move(device), std::move(host), std::move(found.libraries), spec.timeline);
  if (const Error* failure = made->failure()) {  // its own pinned memory was not to be had
    return *failure;
  }
  RETURN_IF_ERROR(made->check_sensors());
  return std::unique_ptr<Device>(std::move(made));
}

}  // namespace tandem::device::cuda
