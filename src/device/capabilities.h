// What an accelerator can do, and apart from it what the host beside it can: with one tier both
// speak of the same CPUs. And what a device tells about its past: sums and pace. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kernels/isa.h"

namespace tandem::device {

// What a stream is for. A device with one tier treats all kinds alike.
enum class StreamKind : uint8_t {
  kCompute,       // waits for nothing but itself: see Device::wait
  kDeviceToHost,  // rows on their way to the host
  kHostToDevice,  // and back
  kSwap,          // blocks that change tier, in small pieces, so that no row queues behind them
};
const char* stream_kind_name(StreamKind kind);  // "to host"

struct AcceleratorCaps {
  std::string name;        // "cpu (amx, 2 threads)"
  std::string backend;     // "cpu", "emulated_accelerator": the same at every start
  std::string identity;    // what step times depend on; profiles compare it
  std::string kernels;     // "avx2:8,avx512bf16": what texts depend on, for profiles and records
  std::string kernel_why;  // the measurement that chose them; empty: nothing was measured
  int32_t threads = 1;     // compute workers, the stream's own thread included
  // Of MemoryKind::kDevice; with one tier, what this process may use in all (cgroup limits
  // respected).
  int64_t memory_bytes = 0;
  int64_t free_memory_bytes = 0;
  std::vector<int32_t> cpus =
      {};  // that it computes and copies on, if it shares none with the host
  // False: it only takes its time, so weights need not be loaded (see AcceleratorSpec::hollow).
  bool needs_weights = true;
};

// A memory node (NUMA) with compute threads on it.
struct NodeUse {
  int32_t id = 0;
  int32_t threads = 0;
  std::vector<int32_t> cpus = {};  // that these may run on
  int64_t memory_bytes = 0;
  int64_t free_bytes = 0;
};

struct HostCaps {
  kernels::Isa isa = kernels::Isa::kRef;  // of attention on the host
  int64_t pinned_bytes = 0;               // of MemoryKind::kHostPinned; 0: there is one tier
  std::vector<int32_t> cpus = {};         // left for attention; two tiers only
  // If the machine has several memory nodes and the cpu device was not told to ignore them.
  std::vector<NodeUse> nodes = {};
  int64_t near_free_bytes = 0;  // free on these nodes; 0: AcceleratorCaps::free_memory_bytes are
};

struct StreamStatistics {
  StreamKind kind = StreamKind::kCompute;
  int64_t ops = 0;
  int64_t events = 0;
  Nanos busy{0};  // in ops; where paced, as modelled
  // Where paced: ops that an event saw end later than modelled, and the sum over the events of how
  // much later than modelled they completed, late wake-ups included.
  int64_t overruns = 0;
  Nanos lateness{0};
};

// Since the device was made. Copies count when they have run.
struct DeviceStatistics {
  std::vector<StreamStatistics> streams = {};  // by StreamId; empty: the device does not count
  int64_t device_to_host_bytes = 0;
  int64_t host_to_device_bytes = 0;
  int64_t device_to_device_bytes = 0;
  int64_t pageable_bytes = 0;  // from memory that the device does not own; only while loading

  [[nodiscard]] int64_t ops() const;
  [[nodiscard]] int64_t overruns() const;
  // Of all ops, those that overran.
  [[nodiscard]] double overrun_share() const;
};

// How a device that is paced by a model has kept its pace. With a larger share of overruns than
// that, its figures are invalid.
inline constexpr double kMaxOverrunShare = 0.01;

}  // namespace tandem::device
