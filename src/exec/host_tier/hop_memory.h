// The memory that hops travel through, the host's KV pool, and the streams that carry rows.
//
//   device: ring [ring rows] · returns [hop rows] · residual store [slots]
//   host:   outbox [hop rows] · results [hop rows] · KV pool [host blocks]
//
// Plain data; engine thread, but for what attention workers read and write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "device/device.h"
#include "exec/workspaces.h"
#include "piggyback/workers/faulty_workers.h"

namespace tandem {

using HostBlockTable = std::vector<int32_t>;  // by block of the sequence

// Everything that attention workers touch. Workers share its ownership, so it outlives a worker
// that hangs and is left behind.
struct HostMemory {
  std::unique_ptr<piggyback::FaultyWorkers> faults;  // null: no faults are planted
  std::shared_ptr<const Clock> clock;                // of threads of this process
  std::unique_ptr<device::Memory> outbox;
  std::unique_ptr<device::Memory> results;
  std::unique_ptr<device::Memory> kv;
  std::unique_ptr<device::Memory> partials;                  // of attention
  std::vector<std::shared_ptr<HostBlockTable>> lost_tables;  // that a lost worker may still read
};

struct HopMemory {
  static Result<HopMemory> allocate(device::Device& device, const HostTierSizes& sizes);

  // Rows by number.
  [[nodiscard]] std::byte* ring_row(int64_t row) const {
    return ring->data() + row * routed_row_bytes;
  }
  [[nodiscard]] std::byte* outbox_row(int64_t row) const {
    return host->outbox->data() + row * routed_row_bytes;
  }
  [[nodiscard]] std::byte* results_row(int64_t row) const {
    return host->results->data() + row * attended_row_bytes;
  }
  [[nodiscard]] std::byte* returns_row(int64_t row) const {
    return returns->data() + row * attended_row_bytes;
  }

  std::unique_ptr<device::Memory> ring;
  std::unique_ptr<device::Memory> returns;
  std::unique_ptr<device::Memory> residual_store;
  std::shared_ptr<HostMemory> host;
  int64_t routed_row_bytes = 0;
  int64_t attended_row_bytes = 0;
  device::StreamId to_host{};    // carries the ring to the outbox
  device::StreamId to_device{};  // carries the results to the returns
};

}  // namespace tandem
