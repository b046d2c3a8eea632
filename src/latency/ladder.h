// Time of dense work by its number of rows: a line through measured points that never falls. Points
// come from Algorithm 1 of OmniServe: the range is halved where its ends differ, so that the steps
// of the ladder that tiles make are found, and interpolated where it is flat.
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"

namespace tandem::latency {

struct LadderPoint {
  int64_t rows = 0;
  double nanos = 0;
  friend bool operator==(const LadderPoint&, const LadderPoint&) = default;
};

class Ladder {
 public:
  // Nothing takes time.
  Ladder() = default;
  // Points in any order, at least one; where they fall with more rows they are levelled (the
  // nearest line that never falls, in least squares). Errors: no points, rows below 1 or above
  // kMostRows or named twice, a time that is not finite or negative.
  static Result<Ladder> through(std::vector<LadderPoint> points);

  // 0 for no rows. Between points by interpolation, below the first as there. Beyond the last the
  // line goes on with the mean slope of the upper half of the range, or, if that half is flat, of
  // the whole range: rows beyond a flat end are not free.
  [[nodiscard]] double nanos(double rows) const;
  [[nodiscard]] const std::vector<LadderPoint>& points() const { return points_; }

  static constexpr int64_t kMostRows = int64_t{1} << 40;

 private:
  std::vector<LadderPoint> points_;  // by rows, never falling
  std::vector<double> by_row_;       // of 0 .. min(last point, kTableRows) rows, for speed
  double slope_ = 0;                 // beyond the last point, for a row
};

// Algorithm 1's question: how long does work of so many rows take, in nanoseconds? Asked once for
// each number of rows.
using MeasureRows = std::function<double(int64_t rows)>;

struct LadderSearch {
  int64_t least_rows = 1;
  int64_t most_rows = 1;
  // Ranges whose ends differ by no more than this are flat. Algorithm 1: time(16) - time(1); see
  // ladder_threshold.
  double threshold_nanos = 0;
  int64_t points = 48;  // measured at most; the range with the largest difference goes first
};

// The difference between 1 and 16 rows, but at least `noise`, a share of the time of 16 rows: where
// 16 rows take as long as one, their difference is only the noise of measuring.
double ladder_threshold(double nanos_of_1, double nanos_of_16, double noise);

// Needs 1 <= least_rows <= most_rows.
std::vector<LadderPoint> search_ladder(const LadderSearch& search, const MeasureRows& measure);

}  // namespace tandem::latency
