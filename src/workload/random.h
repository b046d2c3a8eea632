// The numbers a workload is drawn from: the same seed gives the same sequence on every machine and
// with every compiler, which the distributions of the standard library do not promise.
// Threads: one owner at a time.
#pragma once

#include <cstdint>

namespace tandem::workload {

// Mixes two numbers into one that shows neither: the seed of a part from the seed of the whole.
uint64_t mixed(uint64_t seed, uint64_t part);

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next();
  double uniform();                // in [0, 1)
  uint64_t below(uint64_t bound);  // in [0, bound); needs bound > 0
  double exponential();            // mean 1
  double normal();                 // mean 0, standard deviation 1
  double gamma(double shape);      // mean `shape`, scale 1; needs shape > 0

 private:
  uint64_t state_;
};

}  // namespace tandem::workload
