// Times parts of the second tier alone, for profiles: attention without the hops that ask for it,
// copies between the pools without a sequence. Nothing may be in flight, and what the KV pools hold
// is lost. Waits for what it times. Engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "device/device.h"
#include "exec/forward_executor.h"
#include "exec/host_tier/hop_memory.h"
#include "exec/host_tier/transfers.h"
#include "piggyback/attention_host.h"
#include "piggyback/core/hop_core.h"

namespace tandem {

class HostProbe {
 public:
  struct Parts {  // all outlive the probe
    device::Device& device;
    const Clock& clock;
    const piggyback::HopCore& core;
    const HopMemory& memory;
    const KvPools& pools;
    piggyback::AttentionHost& attention;
  };
  HostProbe(const Parts& parts, int32_t block_tokens, int64_t max_table_blocks);

  // As the functions of ForwardExecutor.
  [[nodiscard]] HostProbeLimits limits() const;
  [[nodiscard]] Result<Nanos> time_attention(int32_t rows, int32_t context);
  [[nodiscard]] Nanos time_copy(TransferKind kind, int64_t bytes);

 private:
  [[nodiscard]] int64_t usable_blocks() const;
  void fill_once(int64_t blocks);
  using Tables = std::vector<std::shared_ptr<HostBlockTable>>;  // of the rows that are timed
  [[nodiscard]] Result<Nanos> attend(std::span<const piggyback::HopTask> tasks,
                                     const Tables& tables);
  void give_up(std::span<const piggyback::HopTask> tasks, const Tables& tables);

  const Parts parts_;
  const int32_t block_tokens_;
  const int64_t max_table_blocks_;
  // Blocks are taken in turn, so that no measurement finds its blocks in a cache.
  int64_t next_block_ = 0;
  bool filled_ = false;
};

}  // namespace tandem
