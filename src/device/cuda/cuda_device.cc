#include "device/cuda/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/units.h"
#include "device/cpu/machine.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_formats.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/probe.h"
#include "device/cuda/reservation.h"

namespace tandem::device::cuda {
namespace {

// Memory of one tier, taken from CUDA once; what is handed out keeps it.
class Tier {
 public:
  Tier(MemoryKind kind, void* begin, int64_t capacity)
      : kind_(kind), begin_(begin), pieces_(static_cast<std::byte*>(begin), capacity) {}
  ~Tier() {
    must(kind_ == MemoryKind::kDevice ? cudaFree(begin_) : cudaFreeHost(begin_), "freeing memory");
  }
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  static Result<std::shared_ptr<Tier>> take(MemoryKind kind, int64_t bytes) {
    void* begin = nullptr;
    const auto size = static_cast<size_t>(Reservation::room_for(bytes));
    const cudaError_t error = kind == MemoryKind::kDevice
                                  ? cudaMalloc(&begin, size)
                                  : cudaHostAlloc(&begin, size, cudaHostAllocPortable);
    if (error != cudaSuccess) {
      const bool on_device = kind == MemoryKind::kDevice;
      return Error{
          ErrorCode::kResourceExhausted,
          fmt::format(
              "{} of {} memory are not to be had: {}; use a smaller --{}", format_bytes(bytes),
              on_device ? "GPU" : "pinned host", cudaGetErrorString(error),
              on_device ? "device-memory" : "host-memory, or raise the limit of locked memory"),
          on_device ? "device-memory" : "host-memory"};
    }
    return std::make_shared<Tier>(kind, begin, bytes);
  }

  Reservation& pieces() { return pieces_; }

 private:
  const MemoryKind kind_;
  void* const begin_;
  Reservation pieces_;
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

void clear(MemoryKind kind, std::byte* data, int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  if (kind == MemoryKind::kHostPinned) {
    std::memset(data, 0, size);
    return;
  }
  must(cudaMemset(data, 0, size), "clearing memory");
  must(cudaDeviceSynchronize(), "clearing memory");
}

class CudaDevice final : public Device {
 public:
  // `host` null: pinned memory is taken piece by piece.
  CudaDevice(AcceleratorCaps caps, HostCaps host_caps, int index, std::shared_ptr<Tier> device,
             std::shared_ptr<Tier> host)
      : caps_(std::move(caps)),
        host_(std::move(host_caps)),
        index_(index),
        device_memory_(std::move(device)),
        host_memory_(std::move(host)),
        streams_(index) {}

  [[nodiscard]] const AcceleratorCaps& caps() const override { return caps_; }
  [[nodiscard]] const HostCaps& host() const override { return host_; }
  [[nodiscard]] const Formats& formats() const override { return cuda_formats(); }

  using Device::allocate;
  [[nodiscard]] Result<std::unique_ptr<Memory>> allocate(const MemoryRequest& request) override {
    if (request.bytes < 0) {
      return invalid_argument(fmt::format("cannot allocate {} bytes", request.bytes));
    }
    must(cudaSetDevice(index_), "choosing the GPU of a thread");
    std::shared_ptr<Tier> tier =
        request.kind == MemoryKind::kDevice ? device_memory_ : host_memory_;
    if (tier == nullptr) {
      ASSIGN_OR_RETURN(tier, Tier::take(request.kind, request.bytes));
    }
    const std::optional<std::byte*> data = tier->pieces().take(request.bytes);
    if (!data.has_value()) {
      const bool on_device = request.kind == MemoryKind::kDevice;
      return Error{
          ErrorCode::kResourceExhausted,
          fmt::format("{} of {} memory do not fit: {} of {} are left; give more with --{}, or use "
                      "a smaller model or KV pool",
                      format_bytes(request.bytes), on_device ? "GPU" : "pinned host",
                      format_bytes(tier->pieces().left()), format_bytes(tier->pieces().capacity()),
                      on_device ? "device-memory" : "host-memory"),
          on_device ? "device-memory" : "host-memory"};
    }
    clear(request.kind, *data, request.bytes);
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
  const std::shared_ptr<Tier> device_memory_;
  const std::shared_ptr<Tier> host_memory_;
  CudaStreams streams_;  // last: what they run uses the memory
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

}  // namespace

Result<std::unique_ptr<Device>> make_cuda_device(const DeviceSpec& spec) {
  ASSIGN_OR_RETURN(const int index,
                   gpu_index(spec.accelerator.has_value() ? spec.accelerator->options : ""));
  ASSIGN_OR_RETURN(const Gpu gpu, probe(index));
  const int64_t bytes =
      spec.device_memory_bytes > 0
          ? spec.device_memory_bytes
          : static_cast<int64_t>(kMemoryShare * static_cast<double>(gpu.free_bytes));
  if (Reservation::room_for(bytes) > gpu.free_bytes) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("{} of GPU memory are asked for, {} has {} free of {}; use a smaller "
                             "--device-memory, or end the processes that nvidia-smi lists",
                             format_bytes(bytes), gpu.name, format_bytes(gpu.free_bytes),
                             format_bytes(gpu.memory_bytes)),
                 "device-memory"};
  }
  ASSIGN_OR_RETURN(std::shared_ptr<Tier> device, Tier::take(MemoryKind::kDevice, bytes));
  std::shared_ptr<Tier> host;
  if (spec.host_memory_bytes > 0) {
    ASSIGN_OR_RETURN(host, Tier::take(MemoryKind::kHostPinned, spec.host_memory_bytes));
  }
  AcceleratorCaps caps{.name = fmt::format("cuda:{} ({}, sm_{}{}, {} of {}, plain kernels)", index,
                                           gpu.name, gpu.major, gpu.minor, format_bytes(bytes),
                                           format_bytes(gpu.memory_bytes)),
                       .backend = "cuda",
                       .identity = fmt::format("cuda ({}, plain kernels)", gpu.name),
                       .kernels = "cuda-plain",
                       .memory_bytes = gpu.memory_bytes,
                       .free_memory_bytes = device->pieces().capacity()};
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(
      std::move(caps), host_caps(spec), index, std::move(device), std::move(host)));
}

}  // namespace tandem::device::cuda
