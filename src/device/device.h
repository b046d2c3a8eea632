// The accelerator interface: memory, streams and events; its ops are in ops.h. Everything above it
// (exec, engine) is written once; back ends stand in cpu/ and emulated/. A stream runs its ops in
// order; streams run beside each other; events order them.
//
// Threads: launch, record, wait and copy-in arguments from one issuing thread per stream; query
// from any thread. Nothing here blocks except allocate and synchronize. Pointers inside an op must
// stay valid, and what they point to unchanged, until an event recorded after the op has completed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "device/ops.h"
#include "kernels/choice.h"
#include "kernels/kernels.h"

namespace tandem::device {

enum class StreamId : int32_t {};
enum class EventId : int64_t {};
enum class MemoryKind : uint8_t {
  kDevice,      // where weights, KV and activations live
  kHostPinned,  // staging for copies to and from the device
};

// An owned piece of memory, 2 MiB-aligned, zero-filled; freed on destruction. Must not outlive its
// device.
class Memory {
 public:
  virtual ~Memory() = default;
  [[nodiscard]] virtual std::byte* data() const = 0;
  [[nodiscard]] virtual int64_t bytes() const = 0;
};

// What a stream is for. A device with one tier treats all kinds alike.
enum class StreamKind : uint8_t {
  kCompute,       // waits for nothing but itself: see Device::wait
  kDeviceToHost,  // rows on their way to the host
  kHostToDevice,  // and back
  kSwap,          // blocks that change tier, in small pieces, so that nobody queues behind them
};

// A memory node (NUMA) with compute threads on it.
struct NodeUse {
  int32_t id = 0;
  int32_t threads = 0;
  std::vector<int32_t> cpus = {};  // that these may run on
  int64_t memory_bytes = 0;
  int64_t free_bytes = 0;
};

struct DeviceCaps {
  std::string name;  // "cpu (amx, 2 threads)"
  kernels::Isa isa = kernels::Isa::kRef;
  int32_t threads = 1;       // compute workers, the stream's own thread included
  int64_t memory_bytes = 0;  // of kind kDevice; with one tier, what this process may use in all
                             // (cgroup limits respected)
  int64_t free_memory_bytes = 0;
  // Of the cpu device on a machine with several memory nodes, unless it was told to look at none.
  std::vector<NodeUse> nodes = {};
  int64_t near_free_bytes = 0;  // free on these nodes; 0: free_memory_bytes are
  // Two tiers only.
  int64_t host_memory_bytes = 0;               // of kind kHostPinned; 0: there is one tier
  std::vector<int32_t> accelerator_cpus = {};  // that the device computes and copies on
  std::vector<int32_t> host_cpus = {};         // left for attention on the host
  // Of products that another family computes, with the same results.
  std::vector<kernels::Choice::Products> products = {};
  std::string product_times = {};  // what that was chosen by; empty: nothing was measured

  // "avx2:8,avx512bf16"; in profiles and records.
  [[nodiscard]] std::string kernels_text() const {
    kernels::Choice choice(isa);
    choice.products = products;
    return kernels::choice_text(choice);
  }
};

class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual const DeviceCaps& caps() const = 0;
  // kResourceExhausted, naming the bytes asked and left, when they are not there.
  [[nodiscard]] virtual Result<std::unique_ptr<Memory>> allocate(MemoryKind kind,
                                                                 int64_t bytes) = 0;
  // Advice on memory that was allocated and not touched yet, for a back end whose threads are
  // nearer to one part of the memory than to another; pages for the panels of each matrix are
  // placed beside the threads that get these panels, and `memory`, which is read in pieces of
  // `unit_bytes`, is spread over all. Most have one memory and nothing to do.
  virtual void place_panels(const kernels::PackedMatrix& /*matrix*/) {}
  virtual void spread(const Memory& /*memory*/, int64_t /*unit_bytes*/) {}
  virtual StreamId create_stream(StreamKind kind) = 0;
  StreamId create_stream() { return create_stream(StreamKind::kCompute); }
  // The op may be held back until an event is recorded behind it.
  virtual void launch(StreamId stream, const Op& op) = 0;
  virtual EventId record(
      StreamId stream) = 0;  // completes when all ops launched so far on `stream` have
  // Like record(), but need not notify the listener: for events that the engine polls anyway.
  virtual EventId record_polled(StreamId stream) { return record(stream); }
  // Later ops of `stream` start after `event`. A compute stream never waits for another: there the
  // event must be its own or complete already; the emulated accelerator stops where it is not.
  virtual void wait(StreamId stream, EventId event) = 0;
  [[nodiscard]] virtual bool query(
      EventId event) const = 0;  // has it completed? Its effects are then visible here
  // Blocks until the event has completed and the listener's call for it has returned; for loading,
  // tests and the end of life, never for the engine's steps.
  virtual void synchronize(EventId event) = 0;
  // Called after each completed event, on a device thread (by several streams perhaps at once);
  // must be quick and must not call the device. Holds for events recorded from now on; one that may
  // still be called for earlier events is kept until the device ends.
  virtual void set_listener(std::function<void()> on_event) = 0;
};

}  // namespace tandem::device
