#include "exec/host_tier/staging_layers.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tandem {

Result<std::unique_ptr<StagingLayers>> StagingLayers::create(device::Device& device,
                                                             CompletionNotifier& notifier,
                                                             const KvPools& pools, int64_t bytes) {
  ASSIGN_OR_RETURN(std::unique_ptr<device::Memory> memory,
                   device.allocate({.bytes = bytes,
                                    .purpose = device::MemoryPurpose::kKv,
                                    .unit_bytes = staging_layout(pools.layout).block_bytes()}));
  return std::unique_ptr<StagingLayers>(
      new StagingLayers(device, notifier, pools, std::move(memory)));
}

// The stream is one of its own: behind blocks that change tier a step would wait for all of them.
StagingLayers::StagingLayers(device::Device& device, CompletionNotifier& notifier,
                             const KvPools& pools, std::unique_ptr<device::Memory> memory)
    : device_(device),
      notifier_(notifier),
      pools_(pools),
      layout_(staging_layout(pools.layout)),
      memory_(std::move(memory)),
      stream_(device.create_stream(device::StreamKind::kDeviceToHost)) {}

StagingLayers::~StagingLayers() {
  for (const std::optional<device::EventId>& copy : copies_) {
    if (copy.has_value()) {
      device_.synchronize(*copy);
    }
  }
}

void StagingLayers::begin(const StepInput& input) {
  CHECK(done(), "step {} begins while the staging layers are copied", input.step);
  host_blocks_.clear();
  for (const StepSlice& slice : input.slices) {
    if (slice.tier == Tier::kHost) {
      host_blocks_.insert(host_blocks_.end(), slice.block_table.begin(), slice.block_table.end());
    }
  }
}

bool StagingLayers::is_free(int32_t layer) const {
  const std::optional<device::EventId>& copy =
      copies_.at(static_cast<size_t>(layer % kStagingLayers));
  return !copy.has_value() || device_.query(*copy);
}

void StagingLayers::copy_out(int32_t layer, device::EventId attended) {
  device_.wait(stream_, attended);
  const int32_t staged = layer % kStagingLayers;
  const int64_t bytes = pools_.layout.block_bytes() / pools_.layout.layers;  // K and V of a layer
  for (size_t block = 0; block < host_blocks_.size(); ++block) {
    std::byte* target = pools_.host + pools_.layout.key_offset(raw(host_blocks_[block]), layer, 0);
    const std::byte* source = data() + layout_.key_offset(static_cast<int64_t>(block), staged, 0);
    device_.launch(
        stream_,
        device::KvMoveOp{.copy = {target, source, bytes}, .layout = layout_, .to_host = true});
  }
  copied_bytes_ += bytes * std::ssize(host_blocks_);
  copies_.at(static_cast<size_t>(staged)) = notifier_.record(stream_, Notify::kOnCompletion);
}

bool StagingLayers::done() const { return is_free(0) && is_free(1); }

}  // namespace tandem
