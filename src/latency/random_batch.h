// Batches as they come about while serving, drawn at random: decodes with contexts of all lengths,
// chunks of prompts, both together. The same seed draws the same batches.
#pragma once

#include <cstdint>
#include <random>

#include "latency/batch.h"

namespace tandem::latency {

class RandomBatches {
 public:
  // Needs limits of at least one row, one sequence and a context of 4.
  RandomBatches(const BatchLimits& limits, uint64_t seed) : limits_(limits), random_(seed) {}

  // Of any regime: two in five decode only, two mixed, one prompts only. Within the limits.
  Batch next();
  // Of this one, where the limits allow it.
  Batch next(Regime regime);

 private:
  [[nodiscard]] double share();                       // 0 .. 1
  int64_t between(int64_t least, int64_t most);       // evenly
  int64_t by_magnitude(int64_t least, int64_t most);  // as often 1 .. 10 as 10 .. 100
  void add_decodes(Batch& batch, int64_t rows);
  void add_prompts(Batch& batch, int64_t rows);
  [[nodiscard]] int64_t tokens_left(const Batch& batch) const;

  const BatchLimits limits_;
  std::mt19937_64 random_;
};

}  // namespace tandem::latency
