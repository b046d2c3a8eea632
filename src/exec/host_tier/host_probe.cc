#include "exec/host_tier/host_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace tandem {
namespace {

using device::CopyOp;
using piggyback::HopTask;

// More than any cache holds, and little enough to be written once in a short time.
constexpr int64_t kMaxProbedBytes = int64_t{512} << 20;
constexpr int64_t kMaxCopyBytes = int64_t{16} << 20;
// An ordinary number as fp32 and as bf16. Pages that were never written would all be one zero page.
constexpr int kFill = 0x3c;
constexpr Nanos kPatience = std::chrono::seconds(10);

}  // namespace

HostProbe::HostProbe(const Parts& parts, int32_t block_tokens, int64_t max_table_blocks)
    : parts_(parts), block_tokens_(block_tokens), max_table_blocks_(max_table_blocks) {}

int64_t HostProbe::usable_blocks() const {
  return std::min(parts_.memory.host->kv->bytes(), kMaxProbedBytes) /
         parts_.pools.layout.block_bytes();
}

HostProbeLimits HostProbe::limits() const {
  const int64_t blocks = usable_blocks();
  return {.rows = parts_.core.limits().hop_rows,
          .context = static_cast<int32_t>(std::min(blocks, max_table_blocks_) * block_tokens_),
          .tokens = blocks * block_tokens_,
          .copy_bytes = std::min(
              {kMaxCopyBytes, parts_.memory.host->kv->bytes(), parts_.pools.device_bytes})};
}

void HostProbe::fill_once(int64_t blocks) {
  if (filled_ || !parts_.attention.computes()) {
    return;
  }
  const HostMemory& host = *parts_.memory.host;
  std::memset(host.kv->data(), kFill,
              static_cast<size_t>(blocks * parts_.pools.layout.block_bytes()));
  std::memset(host.outbox->data(), kFill, static_cast<size_t>(host.outbox->bytes()));
  filled_ = true;
}

Result<Nanos> HostProbe::time_attention(int32_t rows, int32_t context) {
  const piggyback::HopCore& core = parts_.core;
  const int64_t pool_blocks = usable_blocks();
  const int64_t row_blocks = (context + block_tokens_ - 1) / block_tokens_;
  CHECK(rows > 0 && rows <= core.limits().hop_rows && context > 0 &&
            rows * row_blocks <= pool_blocks && core.in_flight() == 0,
        "{} rows of {} tokens in a pool of {} blocks, {} hops in flight", rows, context,
        pool_blocks, core.in_flight());
  fill_once(pool_blocks);
  Tables tables;
  std::vector<HopTask> tasks;
  const int32_t layer = static_cast<int32_t>(next_block_) % core.limits().last_stage;
  for (int32_t row = 0; row < rows; ++row) {
    HostBlockTable& table = *tables.emplace_back(std::make_shared<HostBlockTable>());
    for (int64_t i = 0; i < row_blocks; ++i) {
      table.push_back(static_cast<int32_t>(next_block_++ % pool_blocks));
    }
    // No sequence of the engine; each row one of its own, as hosts place KV by sequences.
    tasks.push_back({.hop = {.slot = row, .generation = 0},
                     .sequence = SequenceId{-1 - row},
                     .layer = layer,
                     .position = context - 1,
                     .hop_row = row,
                     .block_table = table.data()});
  }
  // Wakes the workers, which are awake while there is traffic.
  HopTask short_task = tasks.front();
  short_task.position = 0;
  RETURN_IF_ERROR(attend(std::span(&short_task, 1), tables));
  return attend(tasks, tables);
}

Result<Nanos> HostProbe::attend(std::span<const HopTask> tasks, const Tables& tables) {
  const Nanos began = parts_.clock.now();
  parts_.attention.submit(tasks);
  std::vector<piggyback::HopAnswer> answers;
  while (answers.size() < tasks.size()) {
    parts_.attention.take_answers(answers);
    if (parts_.clock.now() - began > kPatience) {
      give_up(tasks, tables);
      return Error{ErrorCode::kInternal,
                   fmt::format("the host's workers have answered {} of {} rows after {} s",
                               answers.size(), tasks.size(), to_seconds(kPatience)),
                   ""};
    }
    parts_.attention.rest();
  }
  return parts_.clock.now() - began;
}

// A worker that is late may still read the tables, so they live as long as the workers.
void HostProbe::give_up(std::span<const HopTask> tasks, const Tables& tables) {
  for (const HopTask& task : tasks) {
    parts_.attention.withdraw(task.hop, task.attempt);
  }
  auto& lost = parts_.memory.host->lost_tables;
  lost.insert(lost.end(), tables.begin(), tables.end());
}

Nanos HostProbe::time_copy(TransferKind kind, int64_t bytes) {
  CHECK(bytes > 0 && bytes <= limits().copy_bytes, "a copy of {} bytes", bytes);
  const bool out = kind == TransferKind::kOffload;
  const device::StreamId stream = out ? parts_.memory.to_host : parts_.memory.to_device;
  std::byte* host = parts_.memory.host->kv->data();
  std::byte* device = parts_.pools.device;
  const Nanos began = parts_.clock.now();
  parts_.device.launch(stream, CopyOp{out ? host : device, out ? device : host, bytes});
  parts_.device.synchronize(parts_.device.record(stream));
  return parts_.clock.now() - began;
}

}  // namespace tandem
