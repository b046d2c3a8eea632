#include "piggyback/workers/attention_worker.h"

#include <algorithm>
#include <span>
#include <stdexcept>

#include "base/check.h"
#include "kernels/routed_row.h"

namespace tandem::piggyback {
namespace {

// A piece takes some tens of microseconds: much longer than taking it from the queue, and short
// enough that the last piece of a task leaves no worker idle for long.
constexpr int64_t kPieceBytes = int64_t{1} << 20;
constexpr int64_t kPiecesPerThread = 4;  // as plan_attention makes them

// Adds the time from its construction to its destruction to `counts`.
class Busy {
 public:
  Busy(const Clock& clock, WorkerCounts& counts)
      : clock_(clock), counts_(counts), began_(clock.now()) {}
  ~Busy() {
    counts_.busy_nanos.fetch_add((clock_.now() - began_).count(), std::memory_order_relaxed);
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  const Clock& clock_;
  WorkerCounts& counts_;
  const Nanos began_;
};

}  // namespace

AttentionWorker::AttentionWorker(AttentionPool& pool, int32_t index)
    : pool_(pool),
      options_(pool.options),
      spec_(pool.options.spec),
      counts_(pool.counts[static_cast<size_t>(index)]),
      index_(index),
      clock_(*pool.options.clock) {}

void AttentionWorker::run() {
  AttentionWork work;
  while (pool_.queue.take(work)) {
    if (work.piece < 0) {
      begin(*work.job);
    } else {
      work_piece(*work.job, work.piece);
    }
  }
}

WorkerAct AttentionWorker::ask(WorkerPoint point, const AttentionJob& job) {
  if (options_.hook == nullptr) {
    return WorkerAct::kGoOn;
  }
  const WorkerAct act = options_.hook->at(point, job.task, index_);
  if (act == WorkerAct::kThrow) {
    throw std::runtime_error("the hook's fault");
  }
  return act;
}

// Runs what reads or writes the task's memory. False: it was withdrawn and nothing was touched.
template <class Kernel>
bool AttentionWorker::touch(AttentionJob& job, const Kernel& kernel) {
  if (!job.gate.enter()) {
    return false;
  }
  if (options_.hook != nullptr) {
    static_cast<void>(options_.hook->at(WorkerPoint::kKernel, job.task, index_));
  }
  {
    const Busy busy(clock_, counts_);
    kernel();
  }
  if (job.gate.leave()) {
    pool_.queue.answer({.hop = job.task.hop,
                        .attempt = job.task.attempt,
                        .failed = true,
                        .worker = index_,
                        .began = job.began,
                        .ended = clock_.now()},
                       1);
  }
  return true;
}

// Kernels throw nothing, but memory can be short when workspaces grow.
void AttentionWorker::begin(AttentionJob& job) {
  bool failed = false;
  job.began = clock_.now();
  job.bytes = 0;
  try {
    static_cast<void>(ask(WorkerPoint::kAppend, job));
    prepare(job);
    if (append(job) && cut(job)) {
      pool_.queue.publish(job);
      return;
    }
    failed = !whole(job);
  } catch (const std::exception&) {
    failed = true;
  }
  finish(job, failed);
}

void AttentionWorker::prepare(AttentionJob& job) {
  const HopTask& task = job.task;
  job.slice = {.row_begin = 0,
               .row_count = 1,
               .first_position = task.position,
               .block_table = task.block_table};
  kernels::AttentionArgs args;
  args.q = reinterpret_cast<const float*>(routed_row(task));
  args.kv = spec_.kv;
  args.layout = spec_.layout;
  args.layer = task.layer;
  args.heads = spec_.heads;
  args.scale = spec_.scale;
  args.window = spec_.windows.empty() ? 0 : spec_.windows[static_cast<size_t>(task.layer)];
  args.slices = &job.slice;
  args.slice_count = 1;
  args.out = spec_.results + task.hop_row * spec_.result_row_bytes;
  args.out_stride = int64_t{spec_.heads} * spec_.layout.padded_head_dim;
  args.out_type = spec_.result_type;
  job.args = args;
  const int64_t context_tokens = int64_t{task.position} + 1;
  const int64_t tokens =
      args.window > 0 ? std::min<int64_t>(context_tokens, args.window) : context_tokens;
  job.bytes = tokens * 2 * spec_.layout.kv_heads * spec_.layout.padded_head_dim *
              element_bytes(spec_.layout.type);
}

const std::byte* AttentionWorker::routed_row(const HopTask& task) const {
  return spec_.routed + task.hop_row * spec_.routed_row_bytes;
}

bool AttentionWorker::append(AttentionJob& job) {
  const int32_t block_tokens = spec_.layout.block_tokens;
  kernels::KvAppendArgs args;
  args.routed = routed_row(job.task);
  args.heads = spec_.heads;
  args.layout = spec_.layout;
  args.layer = job.task.layer;
  args.block = job.task.block_table[job.task.position / block_tokens];
  args.slot = job.task.position % block_tokens;
  args.kv = spec_.kv;
  return touch(job, [&] { options_.kernels->kv_append(args, 0, spec_.layout.kv_heads); });
}

// Plans a task that is worth cutting; false: it is not. If all rooms are taken there are enough
// tasks for the other workers, and this task is cut into heads.
bool AttentionWorker::cut(AttentionJob& job) {
  if (options_.threads == 1 || job.bytes <= kPieceBytes) {
    return false;
  }
  const int64_t threads =
      std::clamp<int64_t>(job.bytes / (kPiecesPerThread * kPieceBytes), 2, options_.threads);
  pool_.queue.take_room(job);
  job.args.partials = job.partials;
  job.args.partial_floats = job.partials == nullptr ? 0 : options_.partials.floats;
  kernels::plan_attention(job.args, static_cast<int32_t>(threads), job.plan);
  return true;
}

bool AttentionWorker::whole(AttentionJob& job) {
  kernels::plan_attention(job.args, 1, plan_);
  CHECK(plan_.merges.empty(), "{} merges for one thread", plan_.merges.size());
  static_cast<void>(ask(WorkerPoint::kAttend, job));
  void* scratch = scratch_.require(options_.kernels->attend_scratch_bytes(job.args));
  return touch(job, [&] { options_.kernels->attend(job.args, plan_.tasks, scratch); });
}

void AttentionWorker::work_piece(AttentionJob& job, int32_t piece) {
  bool failed = false;
  try {
    static_cast<void>(ask(WorkerPoint::kAttend, job));
    void* scratch = scratch_.require(options_.kernels->attend_scratch_bytes(job.args));
    failed = !touch(job, [&] {
      options_.kernels->attend(
          job.args, std::span(job.plan.tasks).subspan(static_cast<size_t>(piece), 1), scratch);
    });
  } catch (const std::exception&) {
    failed = true;
  }
  if (!pool_.queue.piece_done(job, failed)) {
    return;
  }
  failed = pool_.queue.any_failed(job) || !touch(job, [&] {
             for (const kernels::AttentionMerge& merge : job.plan.merges) {
               kernels::merge_splits(*options_.kernels, job.args, merge);
             }
           });
  finish(job, failed);
}

void AttentionWorker::finish(AttentionJob& job, bool failed) {
  WorkerAct act = WorkerAct::kGoOn;
  try {
    act = ask(WorkerPoint::kAnswer, job);
  } catch (const std::exception&) {
    failed = true;
  }
  const bool withdrawn = !job.gate.finish();
  failed = failed || withdrawn;
  (failed ? counts_.failed : counts_.tasks).fetch_add(1, std::memory_order_relaxed);
  if (!failed) {
    counts_.bytes.fetch_add(job.bytes, std::memory_order_relaxed);
  }
  const HopAnswer result{.hop = job.task.hop,
                         .attempt = job.task.attempt,
                         .failed = failed,
                         .worker = index_,
                         .began = job.began,
                         .ended = clock_.now(),
                         .bytes = failed ? 0 : job.bytes};
  pool_.queue.give_back(job);
  if (!withdrawn) {
    answer(result, act);
  }
}

void AttentionWorker::answer(const HopAnswer& answer, WorkerAct act) {
  pool_.queue.answer(answer, act == WorkerAct::kAnswerTwice ? 2 : 1);
  if (options_.hook == nullptr) {
    return;
  }
  HopAnswer& oldest = answered_[answers_++ % kRemembered];
  if (act == WorkerAct::kAnswerOutdated && answers_ > kRemembered) {
    pool_.queue.answer(oldest, 1);
  }
  oldest = answer;
}

}  // namespace tandem::piggyback
