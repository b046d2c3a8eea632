#include "exec/host_tier/host_tier.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "kernels/routed_row.h"

namespace tandem {

namespace {

// Workers with cores of their own look for work across the gap between two groups; waking one that
// sleeps costs the engine thread some 10 us.
constexpr Nanos kWorkerSpin = std::chrono::microseconds(1000);

// Half a group's rows, but not every stage's.
constexpr int32_t kFewestStagesWorthWaking = 2;

// Planted: how late the latest answers come.
constexpr int kLatestInPatiences = 3;

}  // namespace

using device::CopyOp;
using device::MemoryKind;
using device::StreamKind;
using piggyback::AttentionDone;
using piggyback::ExitRun;
using piggyback::HopId;
using piggyback::HopTask;
using piggyback::LostAttempt;
using piggyback::RowRun;
using piggyback::Visit;

Result<std::unique_ptr<HostTier>> HostTier::create(
    const model::ModelConfig& config, const model::Weights& weights, device::Device& device,
    const ExecutorOptions& options, std::byte* device_kv, std::function<void()> on_event) {
  const kernels::KvLayout layout = kv_layout_for(config, options);
  const HostTierSizes sizes = host_tier_sizes(config, weights, options);
  const piggyback::HopLimits limits = hop_limits(config, options);
  const Shape shape{.routed_row_bytes = sizes.routed_row,
                    .attended_row_bytes = sizes.attended_row,
                    .residual_stride = stage_strides(config, weights).residual,
                    .block_tokens = layout.block_tokens};
  const auto longest_table = static_cast<size_t>(
      (longest_context(config, options) + layout.block_tokens - 1) / layout.block_tokens);
  std::unique_ptr<HostTier> tier(new HostTier(device, options, shape, limits, longest_table));
  RETURN_IF_ERROR(tier->allocate(sizes));
  tier->transfers_ = std::make_unique<Transfers>(
      device, KvPools{.device = device_kv,
                      .host = tier->host_->kv->data(),
                      .block_bytes = layout.block_bytes(),
                      .device_bytes = total_blocks(layout, options) * layout.block_bytes()});
  RETURN_IF_ERROR(tier->start_workers(config, weights, options, layout));
  tier->on_event_ = on_event ? std::move(on_event) : std::function<void()>([] {});
  tier->attention_->set_listener(tier->on_event_);
  return tier;
}

Status HostTier::start_workers(const model::ModelConfig& config, const model::Weights& weights,
                               const ExecutorOptions& options, const kernels::KvLayout& layout) {
  ASSIGN_OR_RETURN(const kernels::Kernels* kernels, kernels::kernels_for(device_.caps().isa));
  std::vector<int32_t> windows;
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    windows.push_back(config.window_of(layer));
  }
  const std::vector<int32_t>& cpus = device_.caps().host_cpus;
  const int32_t threads = options.host.threads;
  if (const device::PlantedFaults& faults = options.host.faults; faults.of_workers()) {
    host_->faults = std::make_unique<piggyback::FaultyWorkers>(
        piggyback::WorkerFaults{.throws = faults.throws,
                                .late = faults.late,
                                .twice = faults.twice,
                                .outdated = faults.outdated,
                                .hangs = faults.hangs,
                                .stuck = faults.stuck,
                                .late_by = kLatestInPatiences * options.host.hop_patience,
                                .seed = faults.seed});
  }
  ASSIGN_OR_RETURN(attention_, piggyback::HostAttention::create(
                                   {.kernels = kernels,
                                    .layout = layout,
                                    .kv = host_->kv->data(),
                                    .heads = config.heads,
                                    .scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim)),
                                    .windows = std::move(windows),
                                    .out_type = weights.type,
                                    .partials = partial_rooms(config, options),
                                    .partial_memory = host_->partials->data(),
                                    .threads = threads,
                                    .cpus = cpus,
                                    .spin = threads <= std::ssize(cpus) ? kWorkerSpin : Nanos{0},
                                    .hook = host_->faults.get(),
                                    .kept = host_}));
  workers_ = threads;
  for (int32_t i = 0; options.host.timeline != nullptr && i < threads; ++i) {
    worker_tracks_.push_back(
        &options.host.timeline->add_track("host workers", fmt::format("worker {}", i)));
  }
  return {};
}

HostTier::HostTier(device::Device& device, const ExecutorOptions& options, const Shape& shape,
                   const piggyback::HopLimits& limits, size_t longest_table)
    : device_(device),
      clock_(*options.host.clock),
      shape_(shape),
      longest_table_(longest_table),
      core_(limits),
      watchdog_({.age = options.host.hop_patience}),
      stages_worth_waking_(std::max(kFewestStagesWorthWaking, options.host.group_stages / 2)),
      out_stream_(device.create_stream(StreamKind::kDeviceToHost)),
      back_stream_(device.create_stream(StreamKind::kHostToDevice)) {}

HostTier::~HostTier() {
  attention_.reset();
  device_.synchronize(device_.record(out_stream_));
  device_.synchronize(device_.record(back_stream_));
}

Status HostTier::allocate(const HostTierSizes& sizes) {
  ASSIGN_OR_RETURN(ring_, device_.allocate(MemoryKind::kDevice, sizes.ring));
  ASSIGN_OR_RETURN(returns_, device_.allocate(MemoryKind::kDevice, sizes.returns));
  ASSIGN_OR_RETURN(residual_store_, device_.allocate(MemoryKind::kDevice, sizes.residual_store));
  ASSIGN_OR_RETURN(host_->outbox, device_.allocate(MemoryKind::kHostPinned, sizes.outbox));
  ASSIGN_OR_RETURN(host_->results, device_.allocate(MemoryKind::kHostPinned, sizes.results));
  ASSIGN_OR_RETURN(host_->kv, device_.allocate(MemoryKind::kHostPinned, sizes.kv));
  ASSIGN_OR_RETURN(host_->partials, device_.allocate(MemoryKind::kHostPinned, sizes.partials));
  return {};
}

void HostTier::place(StageBuffers& buffers) const {
  buffers.ring = ring_->data();
  buffers.returns = returns_->data();
  buffers.residual_store = reinterpret_cast<float*>(residual_store_->data());
}

// ---------------------------------------------------------------- sequences

void HostTier::enter(const OffloadedToken& token) {
  Offloaded& entry = offloaded_[token.sequence];
  set_table(entry, token.host_table);
  entry.sample = token.sample;
  const bool entered = core_.enter(token.sequence, token.token, token.position, now(), token.lane);
  CHECK(entered, "sequence {} is offloaded beyond the {} that may be", raw(token.sequence),
        core_.limits().slots);
}

// Workers read the table without a lock, perhaps long after their answer stopped to matter: what
// they may read is only added to, and never moves.
void HostTier::set_table(Offloaded& entry, std::span<const BlockId> table) {
  CHECK(table.size() <= longest_table_, "a table of {} blocks, at most {} are planned",
        table.size(), longest_table_);
  const bool longer = entry.table != nullptr && table.size() >= entry.table->size() &&
                      std::equal(entry.table->begin(), entry.table->end(), table.begin(),
                                 [](int32_t known, BlockId block) { return known == raw(block); });
  if (!longer) {
    if (entry.table != nullptr) {
      entry.old_tables.push_back(std::move(entry.table));
    }
    ++table_changes_;
    entry.table = std::make_shared<Table>();
    entry.table->reserve(longest_table_);
  }
  for (size_t i = entry.table->size(); i < table.size(); ++i) {
    entry.table->push_back(raw(table[i]));
  }
}

void HostTier::leave(SequenceId sequence) {
  if (core_.leave(sequence)) {
    gather_events();
    return;
  }
  events_.left.push_back(sequence);  // it never entered: nothing is under way
  on_event_();
}

void HostTier::start(const TierTransfer& transfer) { transfers_->start(transfer); }

const SampleSpec& HostTier::sample_of(SequenceId sequence) const {
  return offloaded_.at(sequence).sample;
}

void HostTier::append_blocks(SequenceId sequence, std::vector<BlockId>& blocks) const {
  std::ranges::transform(*offloaded_.at(sequence).table, std::back_inserter(blocks),
                         [](int32_t block) { return static_cast<BlockId>(block); });
}

TierEvents HostTier::take_events() {
  pump();
  table_changes_ += events_.failed.empty() && events_.left.empty() ? 0 : 1;
  for (const SequenceId sequence : events_.failed) {
    offloaded_.erase(sequence);
  }
  for (const SequenceId sequence : events_.left) {
    offloaded_.erase(sequence);
  }
  return std::exchange(events_, {});
}

// Not every event comes with a completion of the device's or an answer of a worker's: a sequence
// that leaves with nothing under way has left at once. Whoever waits for events is told of each.
void HostTier::gather_events() {
  const bool told = has_events();
  transfers_->take_done(events_.transfers_done);
  core_.take_failed(events_.failed);
  core_.take_left(events_.left);
  if (has_events() && !told) {
    on_event_();
  }
}

TierCounts HostTier::counts() const {
  TierCounts counts = counts_;
  const piggyback::HostAttentionStatistics workers = attention_->statistics();
  counts.attended_bytes = workers.bytes;
  counts.attention_time = workers.busy;
  counts.offloaded_bytes = transfers_->offloaded_bytes();
  counts.onloaded_bytes = transfers_->onloaded_bytes();
  counts.hops_in_flight = core_.in_flight();
  counts.workers_lost = std::ssize(lost_);
  counts.workers = workers_;
  counts.layers = core_.limits().last_stage;
  return counts;
}

// ---------------------------------------------------------------- a hop's way

void HostTier::bind(int32_t stage, int32_t limit, int64_t ticket, std::vector<Visit>& visits) {
  const size_t before = visits.size();
  core_.bind(stage, limit, ticket, visits);
  counts_.visits += static_cast<int64_t>(visits.size() - before);
}

void HostTier::bind_lane(int32_t stage, int32_t lane, int32_t limit, int64_t ticket,
                         std::vector<Visit>& visits) {
  const size_t before = visits.size();
  core_.bind_lane(stage, lane, limit, ticket, visits);
  counts_.visits += static_cast<int64_t>(visits.size() - before);
}

void HostTier::send(std::span<const Visit> visits, device::EventId routed) {
  exit_runs_.clear();
  piggyback::HopCore::exit_runs(visits, exit_runs_);
  device_.wait(out_stream_, routed);
  for (const ExitRun& run : exit_runs_) {
    device_.launch(out_stream_,
                   CopyOp{host_->outbox->data() + run.hop_row * shape_.routed_row_bytes,
                          ring_->data() + run.ring_row * shape_.routed_row_bytes,
                          run.rows * shape_.routed_row_bytes});
  }
  Exit exit;
  if (!spare_hops_.empty()) {
    exit.hops = std::move(spare_hops_.back());
    spare_hops_.pop_back();
  }
  exit.hops.clear();
  for (const Visit& visit : visits) {
    exit.hops.push_back(visit.hop);
  }
  // Rows for workers that have enough to do can wait until somebody looks; for others, the rows of
  // some stages at a time are soon enough.
  const bool enough = ++sent_stages_ >= stages_worth_waking_;
  sent_stages_ = enough ? 0 : sent_stages_;
  exit.copied = record_copy(
      out_stream_, enough && attention_->waiting() == 0 ? Worth::kWaking : Worth::kNothing);
  counts_.hops += static_cast<int64_t>(visits.size());
  counts_.bytes_to_host += static_cast<int64_t>(visits.size()) * shape_.routed_row_bytes;
  exits_.push_back(std::move(exit));
}

void HostTier::pump() {
  take_exits();
  take_answers();
  send_returns();
  watch();
  hand_out();
  gather_events();
}

device::EventId HostTier::record_copy(device::StreamId stream, Worth worth) {
  if (apart_ == Nanos{0} || worth == Worth::kWaking) {
    return device_.record(stream);
  }
  kept_quiet_ = true;
  return device_.record_quietly(stream);
}

void HostTier::wake_seldom(Nanos apart) {
  if (apart == apart_) {
    return;
  }
  apart_ = apart;
  attention_->gather_answers(apart);
  if (apart > Nanos{0}) {
    return;
  }
  if (std::exchange(kept_quiet_, false)) {
    device_.record(out_stream_);
    device_.record(back_stream_);
  }
  pump();  // answers that nobody was told of
}

void HostTier::take_exits() {
  while (!exits_.empty() && device_.query(exits_.front().copied)) {
    core_.exits_copied(exits_.front().hops);
    spare_hops_.push_back(std::move(exits_.front().hops));
    exits_.pop_front();
  }
}

void HostTier::hand_out() {
  tasks_.clear();
  HopTask task;
  const Nanos now = clock_.now();
  while (core_.next_task(now, task)) {
    tasks_.push_back({.hop = task.hop,
                      .attempt = task.attempt,
                      .layer = task.layer,
                      .position = task.position,
                      .block_table = table_of(task),
                      .routed = host_->outbox->data() + task.hop_row * shape_.routed_row_bytes,
                      .out = host_->results->data() + task.hop_row * shape_.attended_row_bytes});
  }
  if (!tasks_.empty()) {
    attention_->submit(tasks_);
  }
}

// By slot, so that a row costs no search; tables are replaced seldom.
const int32_t* HostTier::table_of(const HopTask& task) {
  const auto slot = static_cast<size_t>(task.hop.slot);
  if (slot >= slot_tables_.size()) {
    slot_tables_.resize(slot + 1);
  }
  SlotTable& known = slot_tables_[slot];
  if (known.sequence != task.sequence || known.of_change != table_changes_) {
    known = {task.sequence, table_changes_, offloaded_.at(task.sequence).table->data()};
  }
  return known.blocks;
}

void HostTier::take_answers() {
  answers_.clear();
  attention_->take_done(answers_);
  for (const AttentionDone& answer : answers_) {
    trace(answer);
    find(answer);
    // A late or outdated answer says no more than that its worker is back.
    if (answer.failed) {
      counts_.doubted += core_.task_failed(answer.hop, answer.attempt) ? 1 : 0;
    } else {
      static_cast<void>(core_.task_done(answer.hop, answer.attempt));
    }
  }
}

// The engine thread writes the workers' tracks, from what their answers say.
void HostTier::trace(const AttentionDone& answer) {
  if (answer.worker >= 0 && answer.worker < std::ssize(worker_tracks_)) {
    worker_tracks_[static_cast<size_t>(answer.worker)]->add({.name = "attention",
                                                             .begin = answer.began,
                                                             .end = answer.ended,
                                                             .detail = "bytes",
                                                             .value = answer.bytes});
  }
}

void HostTier::send_returns() {
  Return back;
  if (!spare_runs_.empty()) {
    back.runs = std::move(spare_runs_.back());
    spare_runs_.pop_back();
  }
  back.runs.clear();
  core_.take_returns(back.runs);
  if (!back.runs.empty()) {
    for (const RowRun& run : back.runs) {
      const int64_t offset = run.begin * shape_.attended_row_bytes;
      const int64_t bytes = run.rows * shape_.attended_row_bytes;
      device_.launch(back_stream_,
                     CopyOp{returns_->data() + offset, host_->results->data() + offset, bytes});
      back.bytes += bytes;
    }
    counts_.bytes_from_host += back.bytes;
    back.copied = record_copy(back_stream_, Worth::kNothing);  // the next bind looks
    back.launched = clock_.now();
    returning_.push_back(std::move(back));
  } else {
    spare_runs_.push_back(std::move(back.runs));
  }
  int64_t bytes = 0;
  Nanos launched{0};
  while (!returning_.empty() && device_.query(returning_.front().copied)) {
    launched = bytes == 0 ? returning_.front().launched : launched;
    bytes += returning_.front().bytes;
    core_.returns_copied(returning_.front().runs, clock_.now());
    spare_runs_.push_back(std::move(returning_.front().runs));
    returning_.pop_front();
  }
  if (bytes > 0) {
    counts_.returning_time += return_link_.carried(bytes, launched, clock_.now());
  }
}

// A few times per patience: every hop row is looked at.
void HostTier::watch() {
  constexpr int kLooks = 4;
  const Nanos now = clock_.now();
  if (now - watched_ < watchdog_.age() / kLooks) {
    return;
  }
  watched_ = now;
  dropped_.clear();
  counts_.doubted += watchdog_.check(now, core_, dropped_);
  for (const HopTask& task : dropped_) {
    attention_->withdraw(task.hop, task.attempt);
  }
  take_answers();  // those of the withdrawn are there at once
  lose();
}

// A worker hangs inside a kernel. Its sequence goes on without it, but what the kernel may still
// write to stays out of use: the hop row, which the core sees to, and the block of its token.
void HostTier::lose() {
  newly_lost_.clear();
  watchdog_.check_lost(clock_.now(), core_, newly_lost_);
  for (const LostAttempt& attempt : newly_lost_) {
    const Offloaded& entry = offloaded_.at(attempt.sequence);
    const auto place = static_cast<size_t>(attempt.position / shape_.block_tokens);
    const auto block = static_cast<BlockId>(entry.table->at(place));
    lost_.push_back({attempt, block});
    events_.lost_blocks.push_back(block);
    host_->lost_tables.push_back(entry.table);
    host_->lost_tables.insert(host_->lost_tables.end(), entry.old_tables.begin(),
                              entry.old_tables.end());
    log::error(
        "a host attention worker has not come back from a kernel for a long time; its request "
        "goes on without it ({} lost now)",
        lost_.size());
  }
}

void HostTier::find(const AttentionDone& answer) {
  const auto entry = std::ranges::find_if(lost_, [&](const Lost& lost) {
    return lost.attempt.hop == answer.hop && lost.attempt.attempt == answer.attempt;
  });
  if (entry != lost_.end()) {
    events_.found_blocks.push_back(entry->block);
    lost_.erase(entry);
    log::warn("a host attention worker that was lost is back ({} lost now)", lost_.size());
  }
}

}  // namespace tandem
