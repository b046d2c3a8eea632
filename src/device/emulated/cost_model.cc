#include "device/emulated/cost_model.h"

#include <algorithm>
#include <array>
#include <variant>

#include "device/op_queries.h"

namespace tandem::device {
namespace {

// A peak that is published is reached in part only; what was measured is taken as it is.
constexpr double kFlopsShare = 0.7;
constexpr double kMemoryShare = 0.85;
// Published by Intel: cores x clock x operations a cycle, channels of memory, links of a socket.
// xeon-6342: 24 x 2.8 GHz x 64 (AVX-512, in fp32), 8 x DDR4-3200, 3 x UPI at 11.2 GT/s.
// xeon-8480: 56 x 2.0 GHz x 1024 (AMX, in bf16), 8 x DDR5-4800, 4 x UPI at 16 GT/s.
// Of the 205 GB/s of the first about 150 are reached.
constexpr double kHostMemoryShare = 0.73;
constexpr std::array kProfiles = {
    AcceleratorProfile{"a100", 312e12, kFlopsShare, 2.0e12, kMemoryShare, 25e9},
    AcceleratorProfile{"h100", 990e12, kFlopsShare, 3.35e12, kMemoryShare, 50e9},
    AcceleratorProfile{"h200", 790e12, 1.0, 4.3e12, 1.0, 50e9},
    AcceleratorProfile{"t4", 65e12, kFlopsShare, 0.32e12, kMemoryShare, 12e9},
    AcceleratorProfile{"a10", 125e12, kFlopsShare, 0.6e12, kMemoryShare, 25e9},
    AcceleratorProfile{"xeon-6342", 4.3e12, kFlopsShare, 204.8e9, kHostMemoryShare, 67.2e9, true},
    AcceleratorProfile{"xeon-8480", 114.7e12, kFlopsShare, 307.2e9, kHostMemoryShare, 128e9, true},
};

constexpr std::array<int64_t, 4> kLadder = {16, 32, 64, 128};

constexpr double kOpNanos = 2000;         // from one op's end to the next one's first byte
constexpr double kGemmNanos = 3000;       // t0
constexpr double kAttentionNanos = 4000;  // b: splitting and merging included
constexpr double kDecodeRowNanos = 50;    // h
constexpr double kNanos = 1e9;

double as_double(int64_t x) { return static_cast<double>(x); }

// By all rows of a slice together.
double tokens_seen(const kernels::AttentionSlice& slice, int32_t window) {
  const int64_t first = int64_t{slice.first_position} + 1;
  const int64_t last = int64_t{slice.first_position} + slice.row_count;
  const auto sum_to = [](int64_t n) { return as_double(n) * as_double(n + 1) / 2; };
  if (window <= 0 || last <= window) {
    return sum_to(last) - sum_to(first - 1);
  }
  const int64_t full = std::max<int64_t>(first, window);  // rows from here on see a whole window
  return sum_to(full - 1) - sum_to(first - 1) + as_double(last - full + 1) * window;
}

class Model {
 public:
  Model(const AcceleratorProfile& profile, const RankGroup& group)
      : flops_per_nano_(profile.flops * profile.flops_share / kNanos),
        bytes_per_nano_(profile.memory_bytes * profile.memory_bytes_share / kNanos),
        group_(group) {}

  // The part of nanos() in which the memory works at its full rate.
  [[nodiscard]] double memory_nanos(const Op& op) const {
    if (const WeightMatrix* weights = product_weights(op)) {
      return label_of(op).value > 0 ? weight_nanos(*weights) / group_.ranks : 0;
    }
    if (const auto* attention = std::get_if<AttentionOp>(&op)) {
      return context_nanos(*attention, attention_load(attention->batch)) / group_.ranks;
    }
    return as_double(std::max<int64_t>(moved_bytes(op), 0)) / bytes_per_nano_;
  }

  // By the bytes that its operands say it moves, unless it has a formula of its own.
  [[nodiscard]] double nanos(const Op& op) const {
    if (const WeightMatrix* weights = product_weights(op)) {
      return product(*weights, label_of(op).value) + sum_of_ranks(op);
    }
    if (const auto* attention = std::get_if<AttentionOp>(&op)) {
      return attend(*attention);
    }
    return by_bytes(moved_bytes(op));
  }

 private:
  [[nodiscard]] double weight_nanos(const WeightMatrix& w) const {
    return as_double(w.stored_bytes) / bytes_per_nano_;
  }
  // Reading the K and V that decoding rows see.
  [[nodiscard]] double context_nanos(const AttentionOp& op, const AttentionLoad& load) const {
    const kernels::KvLayout& layout = op.batch.layout;
    const double token_bytes =
        2.0 * layout.kv_heads * layout.padded_head_dim * as_double(element_bytes(layout.type));
    return load.decode_context * token_bytes / bytes_per_nano_;
  }
  [[nodiscard]] double product(const WeightMatrix& w, int64_t rows) const {
    if (rows <= 0) {
      return 0;
    }
    const double weights = weight_nanos(w);
    const double tiles =
        2 * as_double(ladder_rows(rows)) * as_double(w.n) * as_double(w.k) / flops_per_nano_;
    return kGemmNanos + std::max(weights, tiles) / group_.ranks;
  }
  // Products that add to the residual are divided by their depth: each rank has a part of the sum.
  [[nodiscard]] double sum_of_ranks(const Op& op) const {
    const auto* gemm = std::get_if<GemmOp>(&op);
    if (group_.ranks == 1 || gemm == nullptr || !gemm->accumulate || gemm->rows <= 0) {
      return 0;
    }
    const double bytes = as_double(gemm->rows * gemm->w.n) * 2;  // as 16-bit numbers
    const double passes = 2.0 * (group_.ranks - 1) / group_.ranks;
    return as_double(group_.latency.count()) + passes * bytes * kNanos / group_.bytes;
  }
  [[nodiscard]] double attend(const AttentionOp& op) const {
    const AttentionBatch& batch = op.batch;
    const AttentionLoad load = attention_load(batch);
    const kernels::KvLayout& layout = batch.layout;
    const double pair_flops = 4.0 * batch.heads * layout.padded_head_dim;
    return batch.shape.slices <= 0
               ? 0
               : kAttentionNanos + load.decode_rows * kDecodeRowNanos +
                     (load.prefill_pairs * pair_flops / flops_per_nano_ + context_nanos(op, load)) /
                         group_.ranks;
  }
  // Bytes read and written.
  [[nodiscard]] double by_bytes(int64_t bytes) const {
    return bytes <= 0 ? 0 : kOpNanos + as_double(bytes) / bytes_per_nano_;
  }
  const double flops_per_nano_;
  const double bytes_per_nano_;
  const RankGroup group_;
};

}  // namespace

const AcceleratorProfile* find_profile(std::string_view name) {
  const auto* found = std::find_if(kProfiles.begin(), kProfiles.end(),
                                   [&](const auto& one) { return one.name == name; });
  return found == kProfiles.end() ? nullptr : found;
}

std::string profile_names() {
  std::string names;
  for (const AcceleratorProfile& one : kProfiles) {
    names += names.empty() ? "" : ", ";
    names += one.name;
  }
  return names;
}

AttentionLoad attention_load(const AttentionBatch& batch) {
  const kernels::AttentionSlice* slices =
      batch.host_slices != nullptr ? batch.host_slices : batch.slices;
  AttentionLoad load;
  for (int32_t i = 0; i < batch.shape.slices; ++i) {
    const double seen = tokens_seen(slices[i], batch.window);
    if (slices[i].row_count > 1) {
      load.prefill_pairs += seen;
    } else {
      load.decode_context += seen;
      ++load.decode_rows;
    }
  }
  return load;
}

Nanos op_time(const AcceleratorProfile& profile, const Op& op, const RankGroup& group) {
  const Model model(profile, group);
  return Nanos{static_cast<int64_t>(model.nanos(op))};
}

Nanos op_memory_time(const AcceleratorProfile& profile, const Op& op, const RankGroup& group) {
  const Model model(profile, group);
  return Nanos{static_cast<int64_t>(model.memory_nanos(op))};
}

Nanos link_transfer_time(double bytes_per_second, int64_t bytes) {
  return Nanos{static_cast<int64_t>(as_double(bytes) * kNanos / bytes_per_second)};
}

int64_t ladder_rows(int64_t rows) {
  for (const int64_t step : kLadder) {
    if (rows <= step) {
      return step;
    }
  }
  return kernels::round_up(rows, kLadder.back());
}

}  // namespace tandem::device
