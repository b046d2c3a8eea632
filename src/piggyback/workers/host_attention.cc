#include "piggyback/workers/host_attention.h"

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

HostAttention::HostAttention(const HostAttentionOptions& options)
    : crew_(std::make_shared<AttentionCrew>(options)) {}

Result<std::unique_ptr<HostAttention>> HostAttention::create(const HostAttentionOptions& options) {
  CHECK(options.threads >= 1, "{} threads", options.threads);
  CHECK(options.kernels != nullptr && options.kv != nullptr, "no kernels or no KV memory");
  CHECK(options.layout.kv_heads > 0 && options.heads > 0 &&
            options.heads % options.layout.kv_heads == 0,
        "{} heads over {} kv heads", options.heads, options.layout.kv_heads);
  CHECK(options.windows.empty() ||
            options.windows.size() == static_cast<size_t>(options.layout.layers),
        "{} windows for {} layers", options.windows.size(), options.layout.layers);
  std::unique_ptr<HostAttention> attention(new HostAttention(options));
  RETURN_IF_ERROR(attention->start());
  return attention;
}

Status HostAttention::start() {
  const HostAttentionOptions& options = crew_->options;
  try {
    for (int32_t i = 0; i < options.threads; ++i) {
      threads_.emplace_back([crew = crew_, i] {
        const std::vector<int32_t>& cpus = crew->options.cpus;
        if (!cpus.empty()) {
          pin_this_thread(cpus[static_cast<size_t>(i) % cpus.size()]);
        }
        AttentionWorker(*crew, i).run();
        crew->queue.exited();
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

HostAttention::~HostAttention() { stop(kStopLimit); }

int32_t HostAttention::stop(Nanos limit) {
  if (threads_.empty()) {
    return 0;
  }
  crew_->queue.stop();
  const auto workers = static_cast<int32_t>(threads_.size());
  const int32_t exited = crew_->queue.wait_for_exits(workers, limit);
  for (std::thread& thread : threads_) {
    if (exited == workers) {
      thread.join();
    } else {
      // Which ones hang cannot be asked without waiting for them. Those that ended are gone anyway.
      thread.detach();
    }
  }
  threads_.clear();
  return workers - exited;
}

void HostAttention::submit(std::span<const AttentionTask> tasks) {
  for (const AttentionTask& task : tasks) {
    CHECK(task.position >= 0 && task.layer >= 0 && task.layer < crew_->options.layout.layers,
          "position {}, layer {} of {}", task.position, task.layer, crew_->options.layout.layers);
    CHECK(task.block_table != nullptr && task.routed != nullptr && task.out != nullptr,
          "a task without memory");
  }
  crew_->queue.submit(tasks);
}

void HostAttention::take_done(std::vector<AttentionDone>& done) { crew_->queue.take_done(done); }

void HostAttention::set_listener(std::function<void()> listener) {
  crew_->queue.set_listener(std::move(listener));
}

void HostAttention::gather_answers(Nanos apart) { crew_->queue.gather_answers(apart); }

void HostAttention::withdraw(HopId hop, int32_t attempt) { crew_->queue.withdraw(hop, attempt); }

void HostAttention::freeze() { crew_->queue.freeze(); }
void HostAttention::thaw() { crew_->queue.thaw(); }

int64_t HostAttention::waiting() const { return crew_->queue.waiting(); }

int64_t HostAttention::in_hand() const { return crew_->queue.in_hand(); }

HostAttentionStatistics HostAttention::statistics() const {
  HostAttentionStatistics sum;
  for (const WorkerCounts& one : crew_->counts) {
    sum.tasks += one.tasks.load(std::memory_order_relaxed);
    sum.failed += one.failed.load(std::memory_order_relaxed);
    sum.bytes += one.bytes.load(std::memory_order_relaxed);
    sum.busy += Nanos{one.busy_nanos.load(std::memory_order_relaxed)};
  }
  return sum;
}

}  // namespace tandem::piggyback
