// What the hop core costs the engine thread, and what late binding is worth.
//   hop_bench cost    nanoseconds per step of binding and pumping, at 400 visiting rows
//   hop_bench workers [MIB]  rate of host attention beside the kernel's own, and its hand-over; KV
//   of MIB in all hop_bench model   share of the bound reached, by group size and hop time
//   (tests/support/hop_model.h)
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "base/affinity.h"
#include "base/clock.h"
#include "kernels/kernels.h"
#include "kernels/routed_row.h"
#include "piggyback/core/hop_core.h"
#include "piggyback/workers/aligned_buffer.h"
#include "piggyback/workers/attention_workers.h"
#include "support/hop_model.h"

namespace tandem::piggyback {
namespace {

// One hop of a group: everything that the engine tells the core about it comes one step later, in
// the order of a busy machine: copies in order, workers out of order.
class CostBench {
 public:
  CostBench(int32_t sequences, int32_t layers, int32_t group)
      : core_({.slots = sequences,
               .ring_rows = sequences,
               .hop_rows = 2 * sequences,
               .last_stage = layers}),
        layers_(layers),
        group_(group),
        limit_((sequences * 5 / 4 + layers - 1) / layers) {
    for (int32_t i = 0; i < sequences; ++i) {
      CHECK(core_.enter(SequenceId{i}, 0, 0, Nanos{0}));
    }
  }

  void step() {
    for (int32_t first = 0; first <= layers_; first += group_) {
      pump();
      launch(first, std::min(layers_ + 1, first + group_));
    }
    for (const SequenceId sequence : sampled_) {
      CHECK(core_.enter(sequence, 0, 0, now_));
    }
    sampled_.clear();
  }

  [[nodiscard]] int64_t rows() const { return rows_; }
  [[nodiscard]] int64_t exit_copies() const { return exit_copies_; }
  [[nodiscard]] int64_t return_copies() const { return return_copies_; }

 private:
  struct Group {
    int64_t ticket = 0;
    std::vector<HopId> exits;
    std::vector<HopTask> tasks;
    std::vector<RowRun> returns;
  };

  void launch(int32_t first, int32_t end) {
    Group group = spare();
    group.ticket = ++ticket_;
    now_ += Nanos{1000};
    for (int32_t stage = first; stage < end; ++stage) {
      visits_.clear();
      core_.bind(stage, limit_, group.ticket, visits_);
      rows_ += static_cast<int64_t>(visits_.size());
      runs_.clear();
      HopCore::exit_runs(visits_, runs_);
      exit_copies_ += static_cast<int64_t>(runs_.size());
      for (const Visit& visit : visits_) {
        if (stage == layers_) {
          sampled_.push_back(visit.sequence);
        } else {
          group.exits.push_back(visit.hop);
        }
      }
    }
    flying_.push_back(std::move(group));
  }

  // A hop takes a little less than a step: groups / 3 for each of its parts.
  void pump() {
    const size_t part = static_cast<size_t>((layers_ + 1) / group_) / 3;
    if (flying_.size() > part) {
      Group& group = flying_[flying_.size() - 1 - part];
      core_.group_done(group.ticket);
      core_.exits_copied(group.exits);
      HopTask task;
      while (core_.next_task(now_, task)) {
        group.tasks.push_back(task);
      }
    }
    if (flying_.size() > 2 * part) {
      Group& group = flying_[flying_.size() - 1 - 2 * part];
      std::shuffle(group.tasks.begin(), group.tasks.end(), random_);
      for (const HopTask& one : group.tasks) {
        CHECK(core_.task_done(one.hop, one.attempt));
      }
      core_.take_returns(group.returns);
      return_copies_ += static_cast<int64_t>(group.returns.size());
    }
    if (flying_.size() > 3 * part) {
      core_.returns_copied(flying_.front().returns, now_);
      spares_.push_back(std::move(flying_.front()));
      flying_.pop_front();
    }
  }

  Group spare() {
    if (spares_.empty()) {
      return {};
    }
    Group group = std::move(spares_.back());
    spares_.pop_back();
    group.exits.clear();
    group.tasks.clear();
    group.returns.clear();
    return group;
  }

  HopCore core_;
  const int32_t layers_;
  const int32_t group_;
  const int32_t limit_;
  std::mt19937 random_{1};
  Nanos now_{0};
  int64_t ticket_ = 0;
  int64_t rows_ = 0;
  int64_t exit_copies_ = 0;
  int64_t return_copies_ = 0;
  std::deque<Group> flying_;
  std::vector<Group> spares_;
  std::vector<Visit> visits_;
  std::vector<ExitRun> runs_;
  std::vector<SequenceId> sampled_;
};

void measure_cost(int32_t layers, int32_t group) {
  CostBench bench(440, layers, group);
  constexpr int kSteps = 4000;
  for (int i = 0; i < 400; ++i) {
    bench.step();
  }
  const int64_t rows = bench.rows();
  const int64_t exits = bench.exit_copies();
  const int64_t returns = bench.return_copies();
  const SteadyClock clock;
  std::vector<int64_t> nanos;
  for (int i = 0; i < kSteps; ++i) {
    const Nanos begin = clock.now();
    bench.step();
    nanos.push_back((clock.now() - begin).count());
  }
  std::sort(nanos.begin(), nanos.end());
  fmt::print(
      "layers {:2} group {} | {:5.1f} rows a step, {:5.1f} copies out, {:5.1f} back | median "
      "{:5.1f} "
      "us, p99 {:5.1f} us a step\n",
      layers, group, static_cast<double>(bench.rows() - rows) / kSteps,
      static_cast<double>(bench.exit_copies() - exits) / kSteps,
      static_cast<double>(bench.return_copies() - returns) / kSteps,
      static_cast<double>(nanos[nanos.size() / 2]) / 1e3,
      static_cast<double>(nanos[nanos.size() * 99 / 100]) / 1e3);
}

void print_model(double host_load, Nanos latency) {
  fmt::print("host busy {:3.0f} %, + {:4.1f} ms |", host_load * 100, to_millis(latency));
  for (const int32_t group : {1, 2, 4, 8, 33}) {
    const HopModelResult result =
        HopModel({.group_stages = group, .host_load = host_load, .host_latency = latency}).run();
    fmt::print(" {:2}: {:.3f} (hop {:.2f} T)", group, result.share, result.hop_steps);
  }
  fmt::print("\n");
}

constexpr int32_t kHeads = 32;
constexpr kernels::KvLayout kLayout{.type = ElementType::kBF16,
                                    .layers = 1,
                                    .kv_heads = 8,
                                    .head_dim = 128,
                                    .padded_head_dim = 128,
                                    .block_tokens = 32};

// Rows of `context` tokens each, all of one layer, with their memory.
struct Rows {
  static constexpr int64_t kOutBytes = int64_t{kHeads} * kLayout.padded_head_dim * 2;

  Rows(int32_t context, int64_t kv_bytes, int32_t least) {
    const int64_t blocks_each = (context + 31) / 32;
    const auto rows = static_cast<int32_t>(
        std::max<int64_t>(least, kv_bytes / (blocks_each * kLayout.block_bytes())));
    const int64_t routed_bytes = kernels::RoutedRow(kLayout, kHeads).bytes();
    const int64_t pool_bytes = rows * blocks_each * kLayout.block_bytes();
    std::memset(pool.require(pool_bytes), 0x3f, static_cast<size_t>(pool_bytes));
    std::memset(routed.require(rows * routed_bytes), 0, static_cast<size_t>(rows * routed_bytes));
    out.require(rows * kOutBytes);
    table.resize(static_cast<size_t>(rows * blocks_each));
    std::iota(table.begin(), table.end(), 0);
    for (int32_t row = 0; row < rows; ++row) {
      tasks.push_back({.hop = {row, 1},
                       .position = context - 1,
                       .hop_row = row,
                       .block_table = table.data() + row * blocks_each});
    }
  }
  AlignedBuffer pool;
  AlignedBuffer routed;
  AlignedBuffer out;
  std::vector<int32_t> table;
  std::vector<HopTask> tasks;
};

std::unique_ptr<AttentionWorkers> start_workers(Rows& rows, const Clock& clock, int32_t threads) {
  const auto kernels = kernels::kernels_for(kernels::available_isas().back());
  CHECK(kernels.ok());
  auto attention = AttentionWorkers::create(
      {.spec = {.layout = kLayout,
                .kv = static_cast<std::byte*>(rows.pool.require(0)),
                .routed = static_cast<std::byte*>(rows.routed.require(0)),
                .routed_row_bytes = kernels::RoutedRow(kLayout, kHeads).bytes(),
                .results = static_cast<std::byte*>(rows.out.require(0)),
                .result_row_bytes = Rows::kOutBytes,
                .heads = kHeads,
                .scale = 0.09F},
       .kernels = *kernels,
       .threads = threads,
       .cpus = threads == 1 ? std::vector<int32_t>{1} : std::vector<int32_t>{},
       .clock = &clock});
  CHECK(attention.ok());
  if (threads == 1) {
    pin_this_thread(0);  // beside its worker; for good, so this comes last
  }
  return std::move(attention).value();
}

void measure_workers(int32_t context, int64_t kv_bytes, int32_t threads) {
  Rows rows(context, kv_bytes, threads);
  const std::span<const HopTask> tasks(rows.tasks);
  const SteadyClock clock;
  const std::unique_ptr<AttentionWorkers> attention = start_workers(rows, clock, threads);
  constexpr int kPasses = 12;
  constexpr size_t kTogether = 13;  // rows of one stage
  Nanos submitting{0};
  Nanos taking{0};
  int64_t takes = 0;
  std::vector<HopAnswer> done;
  const Nanos begin = clock.now();
  for (int pass = 0; pass < kPasses; ++pass) {
    done.clear();
    for (size_t first = 0; first < tasks.size(); first += kTogether) {
      const Nanos before = clock.now();
      attention->submit(tasks.subspan(first, std::min(kTogether, tasks.size() - first)));
      submitting += clock.now() - before;
    }
    while (done.size() < tasks.size()) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      const size_t known = done.size();
      const Nanos before = clock.now();
      attention->take_answers(done);
      taking += clock.now() - before;
      takes += done.size() > known ? 1 : 0;
    }
  }
  const Nanos wall = clock.now() - begin;
  const AttentionHostCounts sum = attention->counts();
  const double own = static_cast<double>(sum.bytes) / static_cast<double>(sum.busy.count());
  const double all = static_cast<double>(sum.bytes) / static_cast<double>(wall.count());
  fmt::print(
      "{} threads, context {:6}, {:5} rows | kernel {:5.1f} GB/s a thread | in all {:5.1f} GB/s, "
      "{:4.2f} of {} kernels | submit {:.2f} us a row, take {:.2f} us a call\n",
      threads, context, tasks.size(), own, all, all / (own * threads), threads,
      static_cast<double>(submitting.count()) / 1e3 / static_cast<double>(sum.tasks),
      static_cast<double>(taking.count()) / 1e3 / static_cast<double>(takes));
}

int run(std::string_view what, int64_t mib) {
  if (what == "cost") {
    for (const int32_t layers : {32, 60}) {
      for (const int32_t group : {1, 4}) {
        measure_cost(layers, group);
      }
    }
    return 0;
  }
  if (what == "workers") {
    for (const int32_t threads : {2, 1}) {
      for (const int32_t context : {128, 1024, 8192, 65536}) {
        measure_workers(context, mib << 20, threads);
      }
    }
    return 0;
  }
  if (what == "model") {
    fmt::print(
        "share of N/((d+1)T), N = 256, d = 32, T = 25 ms, capacity 1.25 N/d, by stages a group\n");
    for (const double load : {0.5, 0.9}) {
      for (const int latency_ms : {0, 2, 4, 6, 8, 10}) {
        print_model(load, std::chrono::milliseconds(latency_ms));
      }
    }
    for (const double capacity : {1.0, 1.1, 1.25, 1.5, 4.0}) {
      const HopModelResult result = HopModel({.group_stages = 4, .capacity = capacity}).run();
      fmt::print("capacity {:.2f} N/d: {:.3f}, at most {} visitors\n", capacity, result.share,
                 result.most_visitors);
    }
    return 0;
  }
  fmt::print(stderr, "hop_bench cost | workers [MIB] | model\n");
  return 2;
}

}  // namespace
}  // namespace tandem::piggyback

int main(int argc, char** argv) {
  const std::string_view what = argc >= 2 ? argv[1] : "";
  const int64_t mib = argc >= 3 ? std::atoll(argv[2]) : 256;
  return tandem::piggyback::run(what, mib);
}
