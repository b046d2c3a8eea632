#include "exec/host_tier/hop_memory.h"

namespace tandem {

using device::MemoryKind;
using device::StreamKind;

Result<HopMemory> HopMemory::allocate(device::Device& device, const HostTierSizes& sizes) {
  HopMemory memory;
  memory.host = std::make_shared<HostMemory>();
  memory.routed_row_bytes = sizes.routed_row;
  memory.attended_row_bytes = sizes.attended_row;
  memory.to_host = device.create_stream(StreamKind::kDeviceToHost);
  memory.to_device = device.create_stream(StreamKind::kHostToDevice);
  ASSIGN_OR_RETURN(memory.ring, device.allocate(MemoryKind::kDevice, sizes.ring));
  ASSIGN_OR_RETURN(memory.returns, device.allocate(MemoryKind::kDevice, sizes.returns));
  ASSIGN_OR_RETURN(memory.residual_store,
                   device.allocate(MemoryKind::kDevice, sizes.residual_store));
  HostMemory& host = *memory.host;
  ASSIGN_OR_RETURN(host.outbox, device.allocate(MemoryKind::kHostPinned, sizes.outbox));
  ASSIGN_OR_RETURN(host.results, device.allocate(MemoryKind::kHostPinned, sizes.results));
  ASSIGN_OR_RETURN(host.kv, device.allocate(MemoryKind::kHostPinned, sizes.kv));
  ASSIGN_OR_RETURN(host.partials, device.allocate(MemoryKind::kHostPinned, sizes.partials));
  return memory;
}

}  // namespace tandem
