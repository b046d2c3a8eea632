#include "piggyback/workers/attention_workers.h"

#include <algorithm>
#include <system_error>

#include "base/affinity.h"
#include "base/check.h"
#include "kernels/attention_partial.h"
#include "piggyback/workers/attention_worker.h"

namespace tandem::piggyback {

PartialRooms partial_rooms(const kernels::KvLayout& layout, int32_t heads, int64_t context_tokens,
                           int32_t threads) {
  // So many tasks at a time, each in a part for each kv head, give every worker two.
  constexpr int64_t kPartsPerThread = 2;
  if (threads == 1) {
    return {};
  }
  return {
      .count = std::min<int64_t>((kPartsPerThread * threads - 1) / layout.kv_heads + 1, threads),
      .floats =
          heads * kernels::splits_of(context_tokens) * kernels::partial_record_floats(layout)};
}

AttentionWorkers::AttentionWorkers(const AttentionWorkersOptions& options)
    : pool_(std::make_shared<AttentionPool>(options)) {}

Result<std::unique_ptr<AttentionWorkers>> AttentionWorkers::create(
    const AttentionWorkersOptions& options) {
  CHECK(options.threads >= 1, "{} threads", options.threads);
  const AttentionSpec& spec = options.spec;
  CHECK(options.kernels != nullptr && options.clock != nullptr, "no kernels or no clock");
  CHECK(spec.kv != nullptr && spec.routed != nullptr && spec.results != nullptr,
        "no memory for KV, routed rows or results");
  CHECK(spec.layout.kv_heads > 0 && spec.heads > 0 && spec.heads % spec.layout.kv_heads == 0,
        "{} heads over {} kv heads", spec.heads, spec.layout.kv_heads);
  CHECK(spec.windows.empty() || spec.windows.size() == static_cast<size_t>(spec.layout.layers),
        "{} windows for {} layers", spec.windows.size(), spec.layout.layers);
  std::unique_ptr<AttentionWorkers> attention(new AttentionWorkers(options));
  RETURN_IF_ERROR(attention->start());
  return attention;
}

Status AttentionWorkers::start() {
  const AttentionWorkersOptions& options = pool_->options;
  try {
    for (int32_t i = 0; i < options.threads; ++i) {
      threads_.emplace_back([pool = pool_, i] {
        const std::vector<int32_t>& cpus = pool->options.cpus;
        if (!cpus.empty()) {
          pin_this_thread(cpus[static_cast<size_t>(i) % cpus.size()]);
        }
        AttentionWorker(*pool, i).run();
        pool->queue.exited();
      });
    }
  } catch (const std::system_error& error) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("cannot start host attention worker {} of {}: {}; use fewer workers",
                             threads_.size() + 1, options.threads, error.what()),
                 "threads"};
  }
  return {};
}

AttentionWorkers::~AttentionWorkers() { stop(kStopLimit); }

int32_t AttentionWorkers::stop(Nanos limit) {
  if (threads_.empty()) {
    return 0;
  }
  pool_->queue.stop();
  const auto workers = static_cast<int32_t>(threads_.size());
  const int32_t exited = pool_->queue.wait_for_exits(workers, limit);
  for (std::thread& thread : threads_) {
    if (exited == workers) {
      thread.join();
    } else {
      // Which threads hang cannot be asked without waiting for them; detaching an ended one is
      // fine.
      thread.detach();
    }
  }
  threads_.clear();
  return workers - exited;
}

void AttentionWorkers::submit(std::span<const HopTask> tasks) {
  for (const HopTask& task : tasks) {
    const int32_t layers = pool_->options.spec.layout.layers;
    CHECK(task.position >= 0 && task.layer >= 0 && task.layer < layers,
          "position {}, layer {} of {}", task.position, task.layer, layers);
    CHECK(task.block_table != nullptr && task.hop_row >= 0, "no block table, or hop row {}",
          task.hop_row);
  }
  pool_->queue.submit(tasks);
}

void AttentionWorkers::take_answers(std::vector<HopAnswer>& answers) {
  pool_->queue.take_answers(answers);
}

void AttentionWorkers::set_listener(AnswerListener listener) {
  pool_->queue.set_listener(std::move(listener));
}

void AttentionWorkers::withdraw(HopId hop, int32_t attempt) { pool_->queue.withdraw(hop, attempt); }

void AttentionWorkers::freeze() { pool_->queue.freeze(); }
void AttentionWorkers::thaw() { pool_->queue.thaw(); }

int64_t AttentionWorkers::waiting() const { return pool_->queue.waiting(); }

int64_t AttentionWorkers::in_hand() const { return pool_->queue.in_hand(); }

AttentionHostCounts AttentionWorkers::counts() const {
  AttentionHostCounts sum;
  for (const WorkerCounts& worker : pool_->counts) {
    sum.tasks += worker.tasks.load(std::memory_order_relaxed);
    sum.failed += worker.failed.load(std::memory_order_relaxed);
    sum.bytes += worker.bytes.load(std::memory_order_relaxed);
    sum.busy += Nanos{worker.busy_nanos.load(std::memory_order_relaxed)};
  }
  return sum;
}

}  // namespace tandem::piggyback
