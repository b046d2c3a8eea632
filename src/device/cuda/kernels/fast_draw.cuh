// Drawing tokens as DrawnRow (sample.h) does, with kSampleParts blocks for a row: the same order of
// filters, the same random number, the same sums of weights by chunks. Nothing is written to the
// logits. The kernels run one after the other; rows that do not need one leave it at once:
//
// 1. WeighTokens, by parts: the bins' counts and weights, sums of weights by chunks.
// 2. FindBins, a block for a row: the bins in which cuts lie.
// 3. ListCandidates, by parts: the tokens of these bins.
// 4. CutRows, a block for a row: where exactly the cuts lie, the list of likely tokens. It reads
//    the candidates, or the row if there are more than kMaxCandidates, as with very many equal
//    logits.
// 5. WeighKept, by parts: sums of weights by chunks of the tokens that are kept.
// 6. DrawTokens, by parts: the token; its rank is counted by parts.
#pragma once

#include "device/cuda/kernels/sample_work.cuh"

namespace tandem::device::cuda {

// ---------------------------------------------------------------- weights

struct WeighTokens {
  static constexpr int kMaxThreads = kDrawThreads;
  struct Shared {
    uint32_t counts[kBins];
    WideBins weights;
    float staged[kStepTokens];
  };
  SampleBatch batch;

  __device__ void operator()(Shared& shared) const {
    const SampledRow row(batch, blockIdx.x);
    const PartOfRow part(row, batch.part);
    if (part.empty() || (!row.needs_bins() && !row.reports)) {
      return;
    }
    clear(shared);
    part.for_each(row, [&](const FourLogits& four, int32_t first) {
      if (row.needs_bins()) {
        add(row, four, shared);
      }
      if (row.reports) {
        sum_step(
            four, first, part.end, [&](float x, int32_t) { return row.plain_weight(x); },
            shared.staged, row.work.plain_weights);
      }
      if (row.top_p && row.top_k == 0) {
        sum_step(
            four, first, part.end, [&](float x, int32_t) { return row.weight(x); }, shared.staged,
            row.work.chunk_weights);
      }
    });
    __syncthreads();
    for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kDrawThreads) {
      if (shared.counts[bin] > 0) {
        atomicAdd(&row.work.counts[bin], shared.counts[bin]);
      }
      if (const uint64_t weight = shared.weights.at(bin); weight > 0) {
        atomicAdd(&row.work.weights[bin], static_cast<unsigned long long>(weight));
      }
    }
  }

 private:
  static __device__ void clear(Shared& shared) {
    for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kDrawThreads) {
      shared.counts[bin] = 0;
      shared.weights.set(bin, 0);
    }
    __syncthreads();
  }
  static __device__ void add(const SampledRow& row, const FourLogits& four, Shared& shared) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j < four.count) {
        const int bin = row.bin(four.at[j]);
        atomicAdd(&shared.counts[bin], 1U);
        if (row.top_p) {
          shared.weights.add(bin, fixed(row.weight(four.at[j])));
        }
      }
    }
  }
};

// ---------------------------------------------------------------- candidates

struct FindBins {
  static constexpr int kMaxThreads = kDrawThreads;
  using Shared = BinSearch;
  SampleBatch batch;

  __device__ void operator()(Shared& search) const {
    const SampledRow row(batch, blockIdx.x);
    if (!row.needs_bins()) {
      return;
    }
    const CandidateBins bins = candidate_bins(row, search);
    uint64_t own = 0;
    for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kDrawThreads) {
      own += bins.has(bin) ? row.work.counts[bin] : 0;
    }
    const uint64_t all = block_sum(own, search.sums);
    if (threadIdx.x == 0) {
      row.work.candidate_bins = bins;
      row.work.all_listed = all <= kMaxCandidates;
    }
  }

 private:
  static __device__ CandidateBins candidate_bins(const SampledRow& row, BinSearch& search) {
    CandidateBins bins{
        .last_listed = -1, .count_cut = -1, .first_weight_cut = 0, .last_weight_cut = -1};
    search.load(row.work.counts);
    if (row.listed > 0) {
      search.find(row.listed);
      bins.last_listed = search.found;
    }
    if (row.top_k > 0) {
      search.find(row.top_k);
      bins.count_cut = search.found;
    }
    if (!row.top_p) {
      return bins;
    }
    // Where top-k cuts its bin is not known yet, nor the exact total.
    constexpr double kRounding = 1e-5;
    search.load(row.work.weights);
    const uint64_t all = search.sum_before(kBins);
    const bool cut = row.top_k > 0;
    const uint64_t lower = cut ? search.sum_before(bins.count_cut) : all;
    const uint64_t upper = cut ? search.sum_before(bins.count_cut + 1) : all;
    const double share = static_cast<double>(row.spec.top_p) / kFixedOne;
    search.find(fixed_target(share * (1.0 - kRounding) * static_cast<double>(lower), all));
    bins.first_weight_cut = search.found;
    search.find(fixed_target(share * (1.0 + kRounding) * static_cast<double>(upper), all));
    bins.last_weight_cut = search.found;
    return bins;
  }
};

struct ListCandidates {
  static constexpr int kMaxThreads = kDrawThreads;
  SampleBatch batch;

  __device__ void operator()() const {
    const SampledRow row(batch, blockIdx.x);
    if (!row.needs_bins() || !row.work.all_listed) {
      return;
    }
    const CandidateBins bins = row.work.candidate_bins;
    PartOfRow(row, batch.part).for_each(row, [&](const FourLogits& four, int32_t /*first*/) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j < four.count && bins.has(row.bin(four.at[j]))) {
          row.work.candidates[atomicAdd(&row.work.candidate_count, 1)] = {four.at[j],
                                                                          four.first + j};
        }
      }
    });
  }
};

// ---------------------------------------------------------------- cuts

struct CutScratch {
  BinSearch search;
  float chunks[kMaxDrawChunks];
  uint32_t highest_key;
  uint32_t lowest_key;
  int32_t place;
  double total;
  int32_t listed;
  int32_t tokens[kernels::kMaxTopLogprobs];
  float logits[kernels::kMaxTopLogprobs];
};

// The sum of all chunks, in their order; by the whole block. `shared` then has the chunks.
__device__ inline double sum_of_chunks(const float* weights, int32_t count, float* shared,
                                       double& total) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  __syncthreads();
  if (thread < count) {
    shared[thread] = weights[thread];
  }
  __syncthreads();
  if (thread == 0) {
    double sum = 0.0;
    for (int32_t chunk = 0; chunk < count; ++chunk) {
      sum += static_cast<double>(shared[chunk]);
    }
    total = sum;
  }
  __syncthreads();
  return total;
}
static_assert(kMaxDrawChunks <= kDrawThreads);

// Functions are called by the whole block.
class RowCut {
 public:
  __device__ RowCut(const SampledRow& row, CutScratch& scratch) : row_(row), shared_(scratch) {}

  __device__ void run(kernels::SampleResult& result) {
    double log_total = 0.0;
    if (row_.reports) {
      log_total = std::log(sum_of_chunks(row_.work.plain_weights, row_.chunk_count(),
                                         shared_.chunks, shared_.total));
    }
    if (row_.listed > 0) {
      list_most_likely(log_total, result);
    }
    if (row_.top_k > 0) {
      kept_ = cut_by_count(row_.top_k);
    }
    if (row_.top_p) {
      kept_ = cut_by_weight();
    }
    if (threadIdx.x == 0) {
      row_.work.kept = kept_;
      row_.work.log_total = log_total;
    }
  }

 private:
  // Calls work(logit, token) for all candidates, or for all tokens of the row.
  __device__ void for_each(bool candidates, const auto& work) const {
    const auto thread = static_cast<int32_t>(threadIdx.x);
    if (candidates) {
      const int32_t count = row_.work.candidate_count;
      for (int32_t i = thread; i < count; i += kDrawThreads) {
        const Candidate own = row_.work.candidates[i];
        work(own.logit, own.token);
      }
      return;
    }
    for (int32_t first = 0; first < row_.count; first += kStepTokens) {
      const FourLogits four(row_.x, first + 4 * thread, row_.count);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j < four.count) {
          work(four.at[j], four.first + j);
        }
      }
    }
  }
  [[nodiscard]] __device__ bool are_candidates(int bin) const {
    return row_.work.all_listed && row_.work.candidate_bins.has(bin);
  }
  // Calls work(key, logit, token) for the tokens of a bin that are kept so far.
  __device__ void for_kept_in(int bin, const auto& work) const {
    for_each(are_candidates(bin), [&](float x, int32_t i) {
      const uint32_t key = order_key(x);
      if (row_.bin(x) == bin && kept_.has(key, i)) {
        work(key, x, i);
      }
    });
  }

  __device__ KeptTokens cut_by_count(int32_t wanted) {
    shared_.search.load(row_.work.counts);
    shared_.search.find(wanted);
    return cut_bin(shared_.search.found, static_cast<uint64_t>(wanted) - shared_.search.before,
                   [](float /*logit*/) -> uint64_t { return 1; });
  }

  // Keeps tokens until the tokens before weigh top_p of all that are kept so far.
  __device__ KeptTokens cut_by_weight() {
    const auto weight = [&](float logit) { return fixed(row_.weight(logit)); };
    uint64_t all = 0;
    double total = 0.0;
    if (row_.top_k > 0) {
      const int bin = row_.bin(key_logit(kept_.key));
      uint64_t own = 0;
      for_kept_in(bin, [&](uint32_t, float x, int32_t) { own += weight(x); });
      shared_.search.load(row_.work.weights);
      all = shared_.search.sum_before(bin);
      all += block_sum(own, shared_.search.sums);
      total = static_cast<double>(all) / kFixedOne;
    } else {
      shared_.search.load(row_.work.weights);
      all = shared_.search.sum_before(kBins);
      total =
          sum_of_chunks(row_.work.chunk_weights, row_.chunk_count(), shared_.chunks, shared_.total);
    }
    const uint64_t wanted = fixed_target(static_cast<double>(row_.spec.top_p) * total, all);
    shared_.search.find(wanted);
    return cut_bin(shared_.search.found, wanted - shared_.search.before, weight);
  }

  // The tokens with which the kept tokens of a bin, in their order, reach the amount `wanted`, at
  // least 1 and at most all, and the tokens of the bins before. All tokens with a key have one
  // amount. The key is found digit by digit, from the bin's highest key on.
  __device__ KeptTokens cut_bin(int bin, uint64_t wanted, const auto& amount) {
    find_keys(bin);
    uint32_t high = shared_.highest_key;
    uint32_t reach = high - shared_.lowest_key;  // keys high - reach .. high are left
    int shift = std::max(static_cast<int>(std::bit_width(reach)) - kBinBits, 0);
    for (;; shift = std::max(shift - kBinBits, 0)) {
      shared_.search.clear();
      for_kept_in(bin, [&](uint32_t key, float x, int32_t) {
        if (key <= high && high - key <= reach) {
          shared_.search.bins.add(static_cast<int>((high - key) >> shift), amount(x));
        }
      });
      shared_.search.sum_up();
      shared_.search.find(wanted);
      wanted -= shared_.search.before;
      high -= static_cast<uint32_t>(shared_.search.found) << shift;
      reach = (1U << shift) - 1U;
      if (shift == 0) {
        break;
      }
    }
    const uint64_t each = amount(key_logit(high));
    const uint64_t equal =
        (shared_.search.sum_before(shared_.search.found + 1) - shared_.search.before) / each;
    const uint64_t ties = (wanted + each - 1) / each;
    return {high, last_tie(bin, high, ties, equal)};
  }
  __device__ void find_keys(int bin) {
    __syncthreads();
    if (threadIdx.x == 0) {
      shared_.highest_key = 0;
      shared_.lowest_key = UINT32_MAX;
    }
    __syncthreads();
    uint32_t highest = 0;
    uint32_t lowest = UINT32_MAX;
    for_kept_in(bin, [&](uint32_t key, float, int32_t) {
      highest = key > highest ? key : highest;
      lowest = key < lowest ? key : lowest;
    });
    if (highest >= lowest) {
      atomicMax(&shared_.highest_key, highest);
      atomicMin(&shared_.lowest_key, lowest);
    }
    __syncthreads();
  }

  // Of the `equal` kept tokens that have `key`: the `ties`-th in order of id.
  __device__ int32_t last_tie(int bin, uint32_t key, uint64_t ties, uint64_t equal) {
    if (ties >= equal) {
      return kept_.key == key ? kept_.last_tie : INT32_MAX;
    }
    shared_.search.clear();
    for_kept_in(bin, [&](uint32_t own, float, int32_t i) {
      if (own == key) {
        shared_.search.bins.add(i / kDrawThreads, 1);
      }
    });
    shared_.search.sum_up();
    shared_.search.find(ties);
    const uint64_t left = ties - shared_.search.before;
    const int32_t i = shared_.search.found * kDrawThreads + static_cast<int32_t>(threadIdx.x);
    const uint32_t own = i < row_.count ? order_key(row_.x[i]) : 0;
    const uint64_t is_tie = i < row_.count && own == key && kept_.has(own, i) ? 1 : 0;
    const uint64_t place = block_inclusive_sum(is_tie, shared_.search.sums);
    if (is_tie == 1 && place == left) {
      shared_.place = i;
    }
    __syncthreads();
    return shared_.place;
  }

  __device__ void list_most_likely(double log_total, kernels::SampleResult& result) {
    const KeptTokens listed = cut_by_count(row_.listed);
    if (threadIdx.x == 0) {
      shared_.listed = 0;
    }
    __syncthreads();
    for_each(are_candidates(row_.bin(key_logit(listed.key))), [&](float x, int32_t i) {
      if (x > -INFINITY && listed.has(order_key(x), i)) {
        const int32_t at = atomicAdd(&shared_.listed, 1);
        shared_.tokens[at] = i;
        shared_.logits[at] = x;
      }
    });
    __syncthreads();
    const int32_t count = shared_.listed;
    if (static_cast<int32_t>(threadIdx.x) < count) {  // each finds its place
      const float logit = shared_.logits[threadIdx.x];
      const int32_t token = shared_.tokens[threadIdx.x];
      int32_t place = 0;
      for (int32_t i = 0; i < count; ++i) {
        const float other = shared_.logits[i];
        place += other > logit || (other == logit && shared_.tokens[i] < token) ? 1 : 0;
      }
      result.top_tokens[place] = token;
      result.top_logprobs[place] = row_.logprob(logit, log_total);
    }
    if (threadIdx.x == 0) {
      result.top_count = count;
    }
  }

  const SampledRow& row_;
  CutScratch& shared_;
  KeptTokens kept_;
};

struct CutRows {
  static constexpr int kMaxThreads = kDrawThreads;
  using Shared = CutScratch;
  SampleBatch batch;

  __device__ void operator()(Shared& shared) const {
    const int64_t index = blockIdx.x;
    const SampledRow row(batch, index);
    kernels::SampleResult& result = batch.args.results[index];
    if (threadIdx.x == 0) {
      const int32_t given = row.spec.given >= 0 ? row.spec.given : row.highest.token;
      result = {};
      result.token = row.usable ? given : -1;
      result.rank = row.reports ? 1 : 0;  // and the tokens before it
      if (batch.args.tokens != nullptr) {
        batch.args.tokens[index] = result.token;
      }
    }
    __syncthreads();
    RowCut(row, shared).run(result);
  }
};

// ---------------------------------------------------------------- the token

// 0 of tokens that are not kept.
__device__ inline float kept_weight(const SampledRow& row, const KeptTokens& kept, float logit,
                                    int32_t token) {
  if (!kept.has(order_key(logit), token)) {
    return 0.0F;
  }
  const float weight = row.weight(logit);
  return logit < row.highest.logit && weight < row.spec.min_p ? 0.0F : weight;
}

struct WeighKept {
  static constexpr int kMaxThreads = kDrawThreads;
  struct Shared {
    float staged[kStepTokens];
  };
  SampleBatch batch;

  __device__ void operator()(Shared& shared) const {
    const SampledRow row(batch, blockIdx.x);
    if (!row.draws) {
      return;
    }
    const KeptTokens kept = row.work.kept;
    const PartOfRow part(row, batch.part);
    part.for_each(row, [&](const FourLogits& four, int32_t first) {
      sum_step(
          four, first, part.end, [&](float x, int32_t i) { return kept_weight(row, kept, x, i); },
          shared.staged, row.work.chunk_weights);
    });
  }
};

struct DrawTokens {
  static constexpr int kMaxThreads = kDrawThreads;
  struct Shared {
    float chunks[kMaxDrawChunks];
    double sums[kDrawThreads / kWarpThreads];
    int32_t counts[kDrawThreads / kWarpThreads];
    double total;
    double rest;
    int32_t chunk;
    int32_t first;  // token at which the sum exceeds `rest`
    int32_t last;   // token of any weight
  };
  SampleBatch batch;

  __device__ void operator()(Shared& shared) const {
    const int64_t index = blockIdx.x;
    const SampledRow row(batch, index);
    const PartOfRow part(row, batch.part);
    if (part.empty() || (!row.reports && (!row.draws || blockIdx.y > 0))) {
      return;
    }
    kernels::SampleResult& result = batch.args.results[index];
    const int32_t token =
        row.draws ? draw(row, shared) : (row.spec.given >= 0 ? row.spec.given : row.highest.token);
    if (blockIdx.y == 0 && threadIdx.x == 0) {
      result.token = token;
      if (row.reports) {
        result.logprob = row.logprob(row.x[token], row.work.log_total);
      }
      if (batch.args.tokens != nullptr) {
        batch.args.tokens[index] = token;
      }
    }
    if (row.reports) {
      count_before(row, part, token, shared, result);
    }
  }

 private:
  static __device__ void count_before(const SampledRow& row, const PartOfRow& part, int32_t token,
                                      Shared& shared, kernels::SampleResult& result) {
    const float logit = row.x[token];
    int32_t before = 0;
    part.for_each(row, [&](const FourLogits& four, int32_t /*first*/) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float x = four.at[j];
        before += j < four.count && (x > logit || (four.first + j < token && x == logit)) ? 1 : 0;
      }
    });
    before = block_sum(before, shared.counts);
    if (threadIdx.x == 0 && before > 0) {
      atomicAdd(&result.rank, before);
    }
  }

  // The first token at which the running sum of kept weights exceeds u times the total.
  static __device__ int32_t draw(const SampledRow& row, Shared& shared) {
    const int32_t chunks = row.chunk_count();
    const double total = sum_of_chunks(row.work.chunk_weights, chunks, shared.chunks, shared.total);
    if (threadIdx.x == 0) {
      const double wanted =
          total * kernels::sample_uniform(row.spec.seed, static_cast<uint64_t>(row.spec.position));
      double mass = 0.0;
      int32_t chunk = 0;
      int32_t last_chunk = 0;
      for (; chunk < chunks; ++chunk) {
        const auto weight = static_cast<double>(shared.chunks[chunk]);
        if (mass + weight > wanted) {
          break;
        }
        last_chunk = weight > 0.0 ? chunk : last_chunk;
        mass += weight;
      }
      // Else the running sum was rounded below the total.
      shared.chunk = chunk < chunks ? chunk : last_chunk;
      shared.rest = chunk < chunks ? wanted - mass : INFINITY;
      shared.first = INT32_MAX;
      shared.last = -1;
    }
    __syncthreads();
    const int32_t i = shared.chunk * kDrawThreads + static_cast<int32_t>(threadIdx.x);
    const float weight = i < row.count ? kept_weight(row, row.work.kept, row.x[i], i) : 0.0F;
    const double mass = block_inclusive_sum(static_cast<double>(weight), shared.sums);
    if (weight > 0.0F) {
      atomicMax(&shared.last, i);
      if (mass > shared.rest) {
        atomicMin(&shared.first, i);
      }
    }
    __syncthreads();
    return shared.first != INT32_MAX ? shared.first : shared.last;
  }
};

}  // namespace tandem::device::cuda
