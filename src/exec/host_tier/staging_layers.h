// KV of prompts that go straight to the host: in the accelerator's memory it takes two layers, not
// all of them (NEO 3.1, layer-wise swapping). A step's even layers write K and V of such prompts to
// the first staging layer, its odd layers to the second. Behind the attention of a layer its K and
// V are copied to the prompts' host blocks. A layer may be launched when the copy of the layer that
// had its place is done: the launch waits, never the compute stream.
//
// Engine thread; nothing blocks but the end of life.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "exec/completion_notifier.h"
#include "exec/forward/stages.h"
#include "exec/host_tier/transfers.h"
#include "plan/step.h"

namespace tandem {

class StagingLayers {
 public:
  // `device` and `notifier` must outlive it; `bytes` is of all layers.
  static Result<std::unique_ptr<StagingLayers>> create(device::Device& device,
                                                       CompletionNotifier& notifier,
                                                       const KvPools& pools, int64_t bytes);
  ~StagingLayers();  // waits for the copies
  StagingLayers(const StagingLayers&) = delete;
  StagingLayers& operator=(const StagingLayers&) = delete;

  [[nodiscard]] std::byte* data() const { return memory_->data(); }
  // Where the prompts of this step go. Needs done().
  void begin(const StepInput& input);
  // Whether the place of this layer of the step may be written to.
  [[nodiscard]] bool is_free(int32_t layer) const;
  // Begins to copy this layer's K and V to the host when `attended` is complete.
  void copy_out(int32_t layer, device::EventId attended);
  // Nothing is being copied.
  [[nodiscard]] bool done() const;
  [[nodiscard]] int64_t copied_bytes() const { return copied_bytes_; }

 private:
  StagingLayers(device::Device& device, CompletionNotifier& notifier, const KvPools& pools,
                std::unique_ptr<device::Memory> memory);

  device::Device& device_;
  CompletionNotifier& notifier_;
  const KvPools pools_;
  const kernels::KvLayout layout_;
  const std::unique_ptr<device::Memory> memory_;
  const device::StreamId stream_;
  std::vector<BlockId> host_blocks_;  // by block of a staging layer
  std::array<std::optional<device::EventId>, kStagingLayers> copies_;  // by staging layer
  int64_t copied_bytes_ = 0;
};

}  // namespace tandem
