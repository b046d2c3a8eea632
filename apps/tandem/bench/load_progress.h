// How a load runs, on standard error: one line that changes on a terminal, a line every few seconds
// elsewhere. One thread.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "loadgen/generator.h"
#include "loadgen/summary.h"

namespace tandem::bench {

class LoadProgress {
 public:
  LoadProgress();
  void show(const loadgen::LiveCounts& counts);
  void finish();

 private:
  bool terminal_;
  bool shown_ = false;
  Nanos last_line_{0};
  // What the rates are made of: the counts a while ago.
  loadgen::LiveCounts before_;
  double chunks_per_s_ = 0;
  double done_per_s_ = 0;
};

// The result as a table on standard output.
void print_summary(const loadgen::Summary& summary, const std::vector<std::string>& metrics,
                   const std::vector<double>& percentiles);

}  // namespace tandem::bench
