// The part of HostTier that is timed alone: attention without the hops that ask for it, copies
// between the pools without a sequence.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "exec/host_tier/host_tier.h"

namespace tandem {
namespace {

using device::CopyOp;
using piggyback::AttentionTask;

// More than any cache holds, and not so much that it takes long to write once.
constexpr int64_t kProbedBytes = int64_t{512} << 20;
constexpr int64_t kMostCopyBytes = int64_t{16} << 20;
// An ordinary number as fp32 and as bf16; zeros that were never written would all be one page.
constexpr int kFill = 0x3c;
constexpr Nanos kPatience = std::chrono::seconds(10);

int64_t blocks_of(const device::Memory& pool, int64_t block_bytes) {
  return std::min(pool.bytes(), kProbedBytes) / block_bytes;
}

}  // namespace

HostProbeLimits HostTier::probe_limits() const {
  const int64_t block_bytes = transfers_->pools().block_bytes;
  const int64_t blocks = blocks_of(*host_->kv, block_bytes);
  const int64_t longest = std::min<int64_t>(blocks, static_cast<int64_t>(longest_table_));
  return {.rows = core_.limits().hop_rows,
          .context = static_cast<int32_t>(longest * shape_.block_tokens),
          .tokens = blocks * shape_.block_tokens,
          .copy_bytes =
              std::min({kMostCopyBytes, host_->kv->bytes(), transfers_->pools().device_bytes})};
}

Result<Nanos> HostTier::time_attention(int32_t rows, int32_t context) {
  const int64_t block_bytes = transfers_->pools().block_bytes;
  const int64_t pool_blocks = blocks_of(*host_->kv, block_bytes);
  const int64_t row_blocks = (context + shape_.block_tokens - 1) / shape_.block_tokens;
  CHECK(rows > 0 && rows <= core_.limits().hop_rows && context > 0 &&
            rows * row_blocks <= pool_blocks && core_.in_flight() == 0,
        "{} rows of {} tokens in a pool of {} blocks, {} hops in flight", rows, context,
        pool_blocks, core_.in_flight());
  if (written_blocks_ == 0) {
    std::memset(host_->kv->data(), kFill, static_cast<size_t>(pool_blocks * block_bytes));
    std::memset(host_->outbox->data(), kFill, static_cast<size_t>(host_->outbox->bytes()));
    written_blocks_ = pool_blocks;
  }
  std::vector<Table> tables(static_cast<size_t>(rows));
  std::vector<AttentionTask> tasks;
  const int32_t layer = static_cast<int32_t>(probed_blocks_) % core_.limits().last_stage;
  for (int32_t row = 0; row < rows; ++row) {
    Table& table = tables[static_cast<size_t>(row)];
    for (int64_t i = 0; i < row_blocks; ++i) {
      table.push_back(static_cast<int32_t>(probed_blocks_++ % pool_blocks));
    }
    tasks.push_back({.hop = {.slot = row, .generation = 0},
                     .layer = layer,
                     .position = context - 1,
                     .block_table = table.data(),
                     .routed = host_->outbox->data() + row * shape_.routed_row_bytes,
                     .out = host_->results->data() + row * shape_.attended_row_bytes});
  }
  // The workers are awake while there is traffic.
  AttentionTask waking = tasks.front();
  waking.position = 0;
  RETURN_IF_ERROR(attend_alone(std::span(&waking, 1)));
  return attend_alone(tasks);
}

Result<Nanos> HostTier::attend_alone(std::span<const AttentionTask> tasks) {
  const Nanos began = clock_.now();
  attention_->submit(tasks);
  answers_.clear();
  while (answers_.size() < tasks.size()) {
    attention_->take_done(answers_);
    if (clock_.now() - began > kPatience) {
      return Error{ErrorCode::kInternal,
                   fmt::format("the host's workers have answered {} of {} rows after {} s",
                               answers_.size(), tasks.size(), to_seconds(kPatience)),
                   ""};
    }
    std::this_thread::yield();
  }
  return clock_.now() - began;
}

Nanos HostTier::time_copy(TransferKind kind, int64_t bytes) {
  CHECK(bytes > 0 && bytes <= probe_limits().copy_bytes, "a copy of {} bytes", bytes);
  const bool out = kind == TransferKind::kOffload;
  const device::StreamId stream = out ? out_stream_ : back_stream_;
  std::byte* host = host_->kv->data();
  std::byte* device = transfers_->pools().device;
  const Nanos began = clock_.now();
  device_.launch(stream, CopyOp{out ? host : device, out ? device : host, bytes});
  device_.synchronize(device_.record(stream));
  return clock_.now() - began;
}

}  // namespace tandem
