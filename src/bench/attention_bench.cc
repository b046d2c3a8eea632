#include "bench/attention_bench.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "base/check.h"
#include "bench/ceilings.h"
#include "bench/measuring.h"

namespace tandem::bench {

namespace {

using kernels::AttentionArgs;
using kernels::AttentionPlan;
using kernels::AttentionSlice;
using kernels::AttentionTask;
using kernels::Kernels;
using kernels::kSplitTokens;

// Memory in huge pages where the system gives them, as the KV pool of a server has it.
class Mapping {
 public:
  explicit Mapping(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED, "no memory for {} bytes", bytes);
    madvise(at, bytes_, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(at);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { munmap(data_, bytes_); }
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  size_t bytes_;
  std::byte* data_ = nullptr;
};

void fill_random(ElementType type, std::byte* data, int64_t bytes) {
  uint64_t state = 88172645463325252ULL;
  for (int64_t i = 0; i < bytes; i += 4) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    uint32_t word = static_cast<uint32_t>(state >> 32);
    // Exponents of 2^-3 to 2^0, random signs and fractions.
    word = type == ElementType::kF32 ? (word & 0x81ffffffU) | 0x3e000000U
                                     : (word & 0x81ff81ffU) | 0x3e003e00U;
    *reinterpret_cast<uint32_t*>(data + i) = word;
  }
}

// Sequences of one length with their blocks shuffled over the pool, and their step's arguments.
class Step {
 public:
  Step(const AttentionBenchOptions& options, const AttentionShape& shape, int64_t sequences,
       int32_t context, int32_t rows_each)
      : threads_(options.threads) {
    args_.layout = {options.type,        1, shape.kv_heads, shape.head_dim, shape.head_dim,
                    options.block_tokens};
    args_.heads = shape.kv_heads * shape.group;
    args_.scale = 0.1F;
    const int64_t blocks_each = (context + options.block_tokens - 1) / options.block_tokens;
    const int64_t pool_bytes = sequences * blocks_each * args_.layout.block_bytes();
    const int64_t rows = sequences * rows_each;
    const int64_t row_bytes = int64_t{args_.heads} * shape.head_dim * int64_t{sizeof(float)};
    pool_ = std::make_unique<Mapping>(pool_bytes);
    q_ = std::make_unique<Mapping>(rows * row_bytes);
    out_ = std::make_unique<Mapping>(rows * row_bytes);
    fill_random(options.type, pool_->data(), pool_bytes);
    fill_random(ElementType::kF32, q_->data(), rows * row_bytes);
    table_.resize(static_cast<size_t>(sequences * blocks_each));
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), std::mt19937_64(1));
    for (int64_t s = 0; s < sequences; ++s) {
      slices_.push_back({static_cast<int32_t>(s * rows_each), rows_each, context - rows_each,
                         table_.data() + s * blocks_each});
    }
    args_.kv = pool_->data();
    args_.q = reinterpret_cast<const float*>(q_->data());
    args_.out = out_->data();
    args_.slices = slices_.data();
    args_.slice_count = static_cast<int32_t>(slices_.size());
    args_.partial_floats = kernels::partial_room(args_.layout, args_.heads, context, threads_);
    partials_.resize(static_cast<size_t>(args_.partial_floats));
    args_.partials = partials_.data();
    kernels::plan_attention(args_, threads_, plan_);
  }

  [[nodiscard]] double read_bytes() const {  // K and V of every task once
    double bytes = 0.0;
    for (const AttentionSlice& slice : slices_) {
      bytes += static_cast<double>(slice.first_position + slice.row_count) * 2 *
               static_cast<double>(args_.layout.kv_heads * args_.layout.head_bytes() /
                                   args_.layout.block_tokens);
    }
    return bytes;
  }

  [[nodiscard]] double operations() const {  // scores and weighted V, a multiply-add is two
    double pairs = 0.0;
    for (const AttentionSlice& slice : slices_) {
      for (int64_t r = 0; r < slice.row_count; ++r) {
        pairs += static_cast<double>(slice.first_position + r + 1);
      }
    }
    return pairs * 4.0 * args_.heads * args_.layout.padded_head_dim;
  }

  double time_attention(const Kernels& table) {
    std::atomic<size_t> next = 0;
    // A server's threads keep their workspace: new memory costs a system milliseconds.
    while (std::ssize(scratch_) < threads_) {
      scratch_.push_back(std::make_unique<Mapping>(table.attend_scratch_bytes(args_)));
    }
    double seconds = run_together(threads_, [&](int thread) {
      for (size_t i = next++; i < plan_.run_ends.size(); i = next++) {
        table.attend(args_, kernels::run_of(plan_, i),
                     scratch_[static_cast<size_t>(thread)]->data());
      }
    });
    next = 0;
    if (!plan_.merges.empty()) {
      seconds += run_together(threads_, [&](int) {
        for (size_t i = next++; i < plan_.merges.size(); i = next++) {
          kernels::merge_splits(table, args_, plan_.merges[i]);
        }
      });
    }
    return seconds;
  }

  double time_reading() {
    std::atomic<size_t> next = 0;
    std::atomic<uint64_t> sink = 0;
    return run_together(threads_, [&](int) {
      uint64_t sum = 0;
      for (size_t i = next++; i < plan_.run_ends.size(); i = next++) {
        sum ^= read_tasks(kernels::run_of(plan_, i));
      }
      sink.fetch_xor(sum);
    });
  }

 private:
  // The runs of contiguous bytes that attention reads, in its order: a split's K, then its V.
  uint64_t read_tasks(std::span<const AttentionTask> tasks) {
    const std::byte* current = nullptr;
    uint64_t sum = 0;
    for (const AttentionTask& task : tasks) {
      const AttentionSlice& slice = slices_[static_cast<size_t>(task.slice)];
      const int64_t blocks_per_split = kSplitTokens / args_.layout.block_tokens;
      const int64_t context = slice.first_position + slice.row_count;
      const int64_t blocks = (context + args_.layout.block_tokens - 1) / args_.layout.block_tokens;
      for (int32_t s = 0; s < task.split_count; ++s) {
        const int64_t begin = (task.split_begin + s) * blocks_per_split;
        const int64_t end = std::min(begin + blocks_per_split, blocks);
        for (const bool values : {false, true}) {
          for (int64_t b = begin; b < end; ++b) {
            const int64_t block = slice.block_table[b];
            const std::byte* run =
                args_.kv + (values ? args_.layout.value_offset(block, 0, task.kv_head)
                                   : args_.layout.key_offset(block, 0, task.kv_head));
            sum ^= current == nullptr ? 0 : read_run(current, run);
            current = run;
          }
        }
      }
    }
    return sum ^ read_run(current, current);
  }

  uint64_t read_run(const std::byte* run, const std::byte* next) const {
    constexpr int64_t kLine = 64;
    const int64_t bytes = args_.layout.head_bytes();
    uint64_t sum = 0;
    for (int64_t at = 0; at < bytes; at += kLine) {
      __builtin_prefetch(next + at, 0, 3);  // a run ahead: faster than 0.5 to 1 KB ahead
      sum ^= *reinterpret_cast<const uint64_t*>(run + at);  // brings the line, so it is the line
    }
    return sum;
  }

  int threads_;
  AttentionArgs args_;
  std::unique_ptr<Mapping> pool_;
  std::unique_ptr<Mapping> q_;
  std::unique_ptr<Mapping> out_;
  std::vector<int32_t> table_;
  std::vector<AttentionSlice> slices_;
  AttentionPlan plan_;
  std::vector<float> partials_;
  std::vector<std::unique_ptr<Mapping>> scratch_;  // of each thread
};

// `expected`, `measured`: seconds of each pass.
BenchRow row_of(const AttentionBenchOptions& options, const Kernels& table, const Step& step,
                std::vector<double> expected, std::vector<double> measured) {
  BenchRow row;
  row.isa = table.name;
  row.type = element_name(options.type);
  row.threads = options.threads;
  row.bytes = step.read_bytes();
  row.operations = step.operations();
  row.ceiling_seconds = median_of(std::move(expected));
  row.seconds = median_of(std::move(measured));
  row.fastest_seconds = measured.front();
  row.slowest_seconds = measured.back();
  return row;
}

BenchRow measure_step(const AttentionBenchOptions& options, const Kernels& table, Step& step,
                      bool read_too) {
  std::vector<double> reading;
  std::vector<double> attention;
  for (int pass = -1; pass < options.passes; ++pass) {  // the first warms up
    const double read_seconds = read_too ? step.time_reading() : 0.0;
    const double seconds = step.time_attention(table);
    if (pass >= 0) {
      reading.push_back(read_seconds);
      attention.push_back(seconds);
    }
  }
  return row_of(options, table, step, std::move(reading), std::move(attention));
}

// A prompt computed in chunks beside the same prompt at once.
BenchRow measure_chunks(const AttentionBenchOptions& options, const Kernels& table,
                        const AttentionShape& shape, int32_t prompt) {
  Step whole(options, shape, 1, prompt, prompt);
  std::vector<std::unique_ptr<Step>> chunks;
  for (int32_t begin = 0; begin < prompt; begin += options.chunk) {
    const int32_t end = std::min(prompt, begin + options.chunk);
    chunks.push_back(std::make_unique<Step>(options, shape, 1, end, end - begin));
  }
  std::vector<double> at_once;
  std::vector<double> chunked;
  for (int pass = -1; pass < options.passes; ++pass) {  // the first warms up
    const double whole_seconds = whole.time_attention(table);
    double seconds = 0.0;
    for (const std::unique_ptr<Step>& chunk : chunks) {
      seconds += chunk->time_attention(table);
    }
    if (pass >= 0) {
      at_once.push_back(whole_seconds);
      chunked.push_back(seconds);
    }
  }
  return row_of(options, table, whole, std::move(at_once), std::move(chunked));
}

void print_row(const BenchRow& row) {
  fmt::print(
      "{:20} {:7} {:9} {:5} {:6} {:5}  {:9.1f} {:9.1f} [{:.1f}..{:.1f}]  {:6.2f} GB/s  {:7.1f} GF",
      row.op, row.isa, row.type, row.rows, row.n, row.k, row.ceiling_seconds * 1e6,
      row.seconds * 1e6, row.fastest_seconds * 1e6, row.slowest_seconds * 1e6,
      row.bytes / row.seconds * 1e-9, row.operations / row.seconds * 1e-9);
  fmt::print("  ratio {:.2f}\n", row.ceiling_seconds / row.seconds);
  std::fflush(stdout);
}

}  // namespace

std::vector<BenchRow> measure_attention(const AttentionBenchOptions& options, kernels::Isa isa,
                                        double operations_per_second) {
  const Result<const Kernels*> table = kernels::kernels_for(isa);
  if (!table.ok()) {
    fmt::print(stderr, "{}\n", table.error().message);
    return {};
  }
  std::vector<BenchRow> rows;
  const auto add = [&](BenchRow row, const AttentionShape& shape, int64_t tokens, int64_t context) {
    row.rows = tokens;
    row.n = context;
    row.k = int64_t{shape.kv_heads} * shape.head_dim;
    print_row(row);
    rows.push_back(row);
  };
  for (const AttentionShape& shape : options.shapes) {
    const int64_t token_bytes =
        int64_t{2} * shape.kv_heads * shape.head_dim * element_bytes(options.type);
    const std::string decode = "decode " + shape.name;
    const std::string prefill = "prefill " + shape.name;
    for (const int32_t context : options.contexts) {
      if (decode.find(options.only) == std::string::npos) {
        continue;
      }
      const int64_t sequences = std::max<int64_t>(1, options.kv_bytes / (context * token_bytes));
      Step step(options, shape, sequences, context, 1);
      BenchRow row = measure_step(options, **table, step, true);
      row.op = decode;
      add(row, shape, sequences, context);
    }
    for (const int32_t prompt : options.prompts) {
      if (prefill.find(options.only) == std::string::npos) {
        continue;
      }
      Step step(options, shape, 1, prompt, prompt);
      BenchRow row = measure_step(options, **table, step, false);
      row.op = prefill;
      row.ceiling_seconds =
          operations_per_second > 0.0 ? row.operations / operations_per_second : 0.0;
      add(row, shape, prompt, prompt);
      if (prompt > options.chunk) {
        row = measure_chunks(options, **table, shape, prompt);
        row.op = prefill + " in chunks";
        add(row, shape, options.chunk, prompt);
      }
    }
  }
  return rows;
}

}  // namespace tandem::bench
