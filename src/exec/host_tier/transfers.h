// Blocks that change tier: moves between the two KV pools on a stream of their own, in pieces of
// whole heads small enough that nothing waits long behind one. Engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "device/device.h"
#include "kernels/kv_layout.h"
#include "plan/step.h"

namespace tandem {

struct KvPools {
  std::byte* device = nullptr;
  std::byte* host = nullptr;
  kernels::KvLayout layout;  // of a block on either side
  int64_t device_bytes = 0;
};

class Transfers {
 public:
  Transfers(device::Device& device, const KvPools& pools);
  ~Transfers();  // waits for the copies
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  void start(const TierTransfer& transfer);
  // Appends the ids of those that are complete, each once.
  void take_done(std::vector<int64_t>& ids);
  [[nodiscard]] const KvPools& pools() const { return pools_; }
  [[nodiscard]] int64_t offloaded_bytes() const { return offloaded_bytes_; }
  [[nodiscard]] int64_t onloaded_bytes() const { return onloaded_bytes_; }

 private:
  struct Running {
    int64_t id = 0;
    device::EventId copied{};
  };
  device::Device& device_;
  const KvPools pools_;
  const device::StreamId stream_;
  std::deque<Running> running_;
  int64_t offloaded_bytes_ = 0;
  int64_t onloaded_bytes_ = 0;
};

}  // namespace tandem
