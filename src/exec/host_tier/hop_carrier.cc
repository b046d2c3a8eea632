#include "exec/host_tier/hop_carrier.h"

#include <algorithm>
#include <utility>

namespace tandem {

using device::CopyOp;
using piggyback::ExitRun;
using piggyback::HopAnswer;
using piggyback::HopTask;
using piggyback::RowRun;
using piggyback::Visit;

namespace {

// While copies are polled, idle workers are given rows after so many stages: half a group's, but
// not each stage's, which would wake the engine thread too often.
constexpr int32_t kMinStagesPerNotice = 2;

template <class T>
std::vector<T> take_spare(std::vector<std::vector<T>>& spare) {
  if (spare.empty()) {
    return {};
  }
  std::vector<T> vector = std::move(spare.back());
  spare.pop_back();
  vector.clear();
  return vector;
}

}  // namespace

HopCarrier::HopCarrier(const Parts& parts, Options options)
    : parts_(parts),
      worker_tracks_(std::move(options.worker_tracks)),
      stages_per_notice_(std::max(kMinStagesPerNotice, options.group_stages / 2)),
      watch_(parts.core, parts.tokens, options.hop_patience, options.block_tokens) {}

HopCarrier::~HopCarrier() {
  parts_.device.synchronize(parts_.device.record(parts_.memory.to_host));
  parts_.device.synchronize(parts_.device.record(parts_.memory.to_device));
}

void HopCarrier::send(std::span<const Visit> visits, device::EventId routed) {
  const HopMemory& memory = parts_.memory;
  exit_runs_.clear();
  piggyback::HopCore::exit_runs(visits, exit_runs_);
  parts_.device.wait(memory.to_host, routed);
  for (const ExitRun& run : exit_runs_) {
    parts_.device.launch(memory.to_host,
                         CopyOp{memory.outbox_row(run.hop_row), memory.ring_row(run.ring_row),
                                run.rows * memory.routed_row_bytes});
  }
  Exit exit{.copied = {}, .hops = take_spare(spare_hops_)};
  for (const Visit& visit : visits) {
    exit.hops.push_back(visit.hop);
  }
  // Rows for workers that have enough to do can wait until the owner polls.
  Notify notify = Notify::kPolled;
  if (++unnoticed_stages_ >= stages_per_notice_) {
    unnoticed_stages_ = 0;
    notify = parts_.attention.waiting() == 0 ? Notify::kOnCompletion : Notify::kPolled;
  }
  exit.copied = parts_.notifier.record(memory.to_host, notify);
  exits_.push_back(std::move(exit));
  const auto rows = static_cast<int64_t>(visits.size());
  sums_.hops += rows;
  sums_.bytes_to_host += rows * memory.routed_row_bytes;
}

void HopCarrier::pump() {
  take_exits();
  take_answers();
  launch_returns();
  take_returns();
  const Nanos now = parts_.clock.now();
  if (watch_.due(now)) {
    sums_.doubted += watch_.check(now, parts_.attention);
    take_answers();  // of the withdrawn attempts
    watch_.check_lost(now);
  }
  hand_out();
}

void HopCarrier::take_exits() {
  while (!exits_.empty() && parts_.device.query(exits_.front().copied)) {
    parts_.core.exits_copied(exits_.front().hops);
    spare_hops_.push_back(std::move(exits_.front().hops));
    exits_.pop_front();
  }
}

void HopCarrier::hand_out() {
  tasks_.clear();
  HopTask task;
  const Nanos now = parts_.clock.now();
  while (parts_.core.next_task(now, task)) {
    task.block_table = parts_.tokens.table_of(task);
    tasks_.push_back(task);
  }
  if (!tasks_.empty()) {
    parts_.attention.submit(tasks_);
  }
}

void HopCarrier::take_answers() {
  answers_.clear();
  parts_.attention.take_answers(answers_);
  for (const HopAnswer& answer : answers_) {
    trace(answer);
    watch_.answered(answer);
    // The core ignores an answer that is late or outdated.
    if (answer.failed) {
      sums_.doubted += parts_.core.task_failed(answer.hop, answer.attempt) ? 1 : 0;
    } else {
      static_cast<void>(parts_.core.task_done(answer.hop, answer.attempt));
    }
  }
}

// The engine thread writes the workers' tracks, from what their answers say.
void HopCarrier::trace(const HopAnswer& answer) {
  if (answer.worker >= 0 && answer.worker < std::ssize(worker_tracks_)) {
    worker_tracks_[static_cast<size_t>(answer.worker)]->add({.name = "attention",
                                                             .begin = answer.began,
                                                             .end = answer.ended,
                                                             .detail = "bytes",
                                                             .value = answer.bytes});
  }
}

void HopCarrier::launch_returns() {
  Return back{.runs = take_spare(spare_runs_)};
  parts_.core.take_returns(back.runs);
  if (back.runs.empty()) {
    spare_runs_.push_back(std::move(back.runs));
    return;
  }
  const HopMemory& memory = parts_.memory;
  for (const RowRun& run : back.runs) {
    const int64_t bytes = run.rows * memory.attended_row_bytes;
    parts_.device.launch(memory.to_device, CopyOp{memory.returns_row(run.begin),
                                                  memory.results_row(run.begin), bytes});
    back.bytes += bytes;
  }
  sums_.bytes_from_host += back.bytes;
  back.copied = parts_.notifier.record(memory.to_device, Notify::kPolled);  // the next bind looks
  back.launched = parts_.clock.now();
  returns_.push_back(std::move(back));
}

void HopCarrier::take_returns() {
  int64_t bytes = 0;
  Nanos launched{0};
  while (!returns_.empty() && parts_.device.query(returns_.front().copied)) {
    launched = bytes == 0 ? returns_.front().launched : launched;
    bytes += returns_.front().bytes;
    parts_.core.returns_copied(returns_.front().runs, parts_.clock.now());
    spare_runs_.push_back(std::move(returns_.front().runs));
    returns_.pop_front();
  }
  if (bytes > 0) {
    sums_.returning_time += return_link_.carried(bytes, launched, parts_.clock.now());
  }
}

void HopCarrier::add_counts(TierCounts& counts) const {
  const piggyback::AttentionHostCounts host = parts_.attention.counts();
  counts.attended_bytes = host.bytes;
  counts.attention_time = host.busy;
  counts.attended_rows = host.tasks;
  counts.hops = sums_.hops;
  counts.doubted = sums_.doubted;
  counts.bytes_to_host = sums_.bytes_to_host;
  counts.bytes_from_host = sums_.bytes_from_host;
  counts.returning_time = sums_.returning_time;
  counts.hops_in_flight = parts_.core.in_flight();
  counts.workers_lost = watch_.workers_lost();
}

}  // namespace tandem
