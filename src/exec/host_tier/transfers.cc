#include "exec/host_tier/transfers.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr int64_t kPieceBytes = int64_t{2} << 20;

// Consecutive blocks on both sides travel together.
size_t run_length(const std::vector<TierTransfer::Pair>& blocks, size_t begin) {
  size_t count = 1;
  while (begin + count < blocks.size() &&
         raw(blocks[begin + count].device) == raw(blocks[begin + count - 1].device) + 1 &&
         raw(blocks[begin + count].host) == raw(blocks[begin + count - 1].host) + 1) {
    ++count;
  }
  return count;
}

}  // namespace

Transfers::Transfers(device::Device& device, const KvPools& pools)
    : device_(device), pools_(pools), stream_(device.create_stream(device::StreamKind::kSwap)) {}

Transfers::~Transfers() {
  if (!running_.empty()) {
    device_.synchronize(running_.back().copied);
  }
}

void Transfers::start(const TierTransfer& transfer) {
  const bool out = transfer.kind == TransferKind::kOffload;
  const int64_t block_bytes = pools_.layout.block_bytes();
  const int64_t head_bytes = pools_.layout.head_bytes();
  const int64_t piece_bytes = std::max<int64_t>(kPieceBytes / head_bytes, 1) * head_bytes;
  for (size_t begin = 0; begin < transfer.blocks.size();) {
    const size_t count = run_length(transfer.blocks, begin);
    std::byte* on_device = pools_.device + raw(transfer.blocks[begin].device) * block_bytes;
    std::byte* on_host = pools_.host + raw(transfer.blocks[begin].host) * block_bytes;
    const int64_t bytes = static_cast<int64_t>(count) * block_bytes;
    for (int64_t offset = 0; offset < bytes; offset += piece_bytes) {
      const int64_t piece = std::min(piece_bytes, bytes - offset);
      device_.launch(stream_,
                     device::KvMoveOp{.copy = {(out ? on_host : on_device) + offset,
                                               (out ? on_device : on_host) + offset, piece},
                                      .layout = pools_.layout,
                                      .to_host = out,
                                      .first_head = offset % block_bytes / head_bytes});
    }
    (out ? offloaded_bytes_ : onloaded_bytes_) += bytes;
    begin += count;
  }
  running_.push_back({transfer.id, device_.record(stream_)});
}

void Transfers::take_done(std::vector<int64_t>& ids) {
  while (!running_.empty() && device_.query(running_.front().copied)) {
    ids.push_back(running_.front().id);
    running_.pop_front();
  }
}

}  // namespace tandem
