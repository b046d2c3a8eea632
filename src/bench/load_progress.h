// How a load runs, and what came of it, as text. On standard error one line that changes on a
// terminal, a line every few seconds elsewhere. One thread.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "loadgen/generator.h"
#include "loadgen/summary.h"

namespace tandem::bench {

std::string progress_text(const loadgen::LiveCounts& counts, double done_per_s,
                          double chunks_per_s);
// "####......": the share of the requests that have ended.
std::string progress_bar(const loadgen::LiveCounts& counts);

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

// The result as a table, with the metrics of `metrics` (ttft, tpot, itl, e2el).
std::string summary_text(const loadgen::Summary& summary, const std::vector<std::string>& metrics,
                         const std::vector<double>& percentiles);

}  // namespace tandem::bench
