// The accelerator interface: memory, streams and events; its ops are in ops.h. Everything above it
// (exec, engine) is written once; back ends stand in cpu/, emulated/, sim/ and cuda/. A stream runs
// its ops in order; streams run beside each other; events order them.
//
// Threads: launch, record, wait and copy-in arguments from one issuing thread per stream; query
// from any thread. Nothing here blocks except allocate and synchronize. Pointers inside an op must
// stay valid, and what they point to unchanged, until an event recorded after the op has completed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "device/capabilities.h"
#include "device/formats.h"
#include "device/ops.h"
#include "device/tuning.h"
#include "observe/accelerator_metrics.h"

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

// What memory is for. From it the back end decides which memory node a piece lies on, beside the
// threads that use it.
enum class MemoryPurpose : uint8_t {
  kWorkspace,
  kWeights,  // of matrices whose parts are read by one thread each, step after step
  kKv,       // read in pieces of unit_bytes, by any thread
};

// Where a matrix will lie in a piece of memory for weights.
struct WeightExtent {
  int64_t offset = 0;
  WeightMatrix matrix;  // without data
};

struct MemoryRequest {
  MemoryKind kind = MemoryKind::kDevice;
  int64_t bytes = 0;
  MemoryPurpose purpose = MemoryPurpose::kWorkspace;
  int64_t unit_bytes = 0;                       // of kKv: a block
  std::span<const WeightExtent> matrices = {};  // of kWeights
};

class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual const AcceleratorCaps& caps() const = 0;
  [[nodiscard]] virtual const HostCaps& host() const = 0;
  // Sizes, types and arrangements, the same for the device's life; known before anything is
  // allocated.
  [[nodiscard]] virtual const Formats& formats() const = 0;
  // Sums so far; any thread. Empty if the device does not count.
  [[nodiscard]] virtual DeviceStatistics statistics() const { return {}; }
  // Its driver's readings; any thread. Empty if the driver has none.
  [[nodiscard]] virtual observe::AcceleratorReadings readings() const { return {}; }
  // Null while the device works. When it has failed for good (what was in its memory is lost): what
  // went wrong, and the cure. From then on nothing runs, nothing blocks, everything launched counts
  // as completed although it was not computed, and allocate gives this error; so ask after a
  // completion and before its results are used. The listener is called once more when it fails. Any
  // thread; the error stays as it is until the device ends.
  [[nodiscard]] virtual const Error* failure() const { return nullptr; }
  // How a paced device is paced ("paced as h200"): figures of its statistics are then valid up to
  // kMaxOverrunShare. Empty: nothing is paced.
  [[nodiscard]] virtual std::string pace() const { return {}; }
  // kResourceExhausted, naming the bytes asked and left, when they are not there.
  [[nodiscard]] virtual Result<std::unique_ptr<Memory>> allocate(const MemoryRequest& request) = 0;
  [[nodiscard]] Result<std::unique_ptr<Memory>> allocate(MemoryKind kind, int64_t bytes) {
    return allocate(MemoryRequest{.kind = kind, .bytes = bytes});
  }
  // Null: the device chooses nothing by measuring.
  [[nodiscard]] virtual Tuning* tuning() { return nullptr; }
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
