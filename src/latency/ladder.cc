#include "latency/ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>

#include "base/check.h"

namespace tandem::latency {
namespace {

constexpr int64_t kTableRows = 4096;

// Pool adjacent violators: the closest values, in least squares, that never fall.
void level(std::vector<LadderPoint>& points) {
  struct Pool {
    double sum = 0;
    size_t count = 0;
    [[nodiscard]] double mean() const { return sum / static_cast<double>(count); }
  };
  std::vector<Pool> pools;
  for (const LadderPoint& point : points) {
    pools.push_back({point.nanos, 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean() > pools.back().mean()) {
      pools[pools.size() - 2].sum += pools.back().sum;
      pools[pools.size() - 2].count += pools.back().count;
      pools.pop_back();
    }
  }
  size_t at = 0;
  for (const Pool& pool : pools) {
    for (size_t i = 0; i < pool.count; ++i) {
      points[at++].nanos = pool.mean();
    }
  }
}

double between(const LadderPoint& low, const LadderPoint& high, double rows) {
  const double share =
      (rows - static_cast<double>(low.rows)) / static_cast<double>(high.rows - low.rows);
  return low.nanos + share * (high.nanos - low.nanos);
}

// Time of `rows` within the points' range.
double interpolate(const std::vector<LadderPoint>& points, double rows) {
  const auto above = std::ranges::lower_bound(
      points, rows, {}, [](const LadderPoint& p) { return static_cast<double>(p.rows); });
  if (above == points.begin()) {
    return above->nanos;
  }
  return above == points.end() ? points.back().nanos : between(*(above - 1), *above, rows);
}

}  // namespace

Result<Ladder> Ladder::through(std::vector<LadderPoint> points) {
  if (points.empty()) {
    return invalid_argument("has no points");
  }
  std::ranges::sort(points, {}, &LadderPoint::rows);
  int64_t before = 0;
  for (const LadderPoint& point : points) {
    if (point.rows < 1 || point.rows > kMostRows) {
      return invalid_argument(fmt::format("has a point of {} rows", point.rows));
    }
    if (point.rows == before) {
      return invalid_argument(fmt::format("names {} rows twice", point.rows));
    }
    if (!std::isfinite(point.nanos) || point.nanos < 0) {
      return invalid_argument(fmt::format("says that {} rows take {} ns", point.rows, point.nanos));
    }
    before = point.rows;
  }
  level(points);
  Ladder ladder;
  const LadderPoint& first = points.front();
  const LadderPoint& last = points.back();
  if (points.size() > 1) {
    const double middle =
        std::max(static_cast<double>(last.rows) / 2, static_cast<double>(first.rows));
    const double upper_half =
        (last.nanos - interpolate(points, middle)) / (static_cast<double>(last.rows) - middle);
    const double whole = (last.nanos - first.nanos) / static_cast<double>(last.rows - first.rows);
    ladder.slope_ = std::max(upper_half > 0 ? upper_half : whole, 0.0);
  }
  const int64_t table = std::min(last.rows, kTableRows);
  ladder.by_row_.reserve(static_cast<size_t>(table) + 1);
  ladder.by_row_.push_back(0);
  for (int64_t rows = 1; rows <= table; ++rows) {
    ladder.by_row_.push_back(interpolate(points, static_cast<double>(rows)));
  }
  ladder.points_ = std::move(points);
  return ladder;
}

double Ladder::nanos(double rows) const {
  if (points_.empty() || rows <= 0) {
    return 0;
  }
  const auto last = static_cast<double>(points_.back().rows);
  if (rows >= last) {
    return points_.back().nanos + slope_ * (rows - last);
  }
  if (const auto low = static_cast<size_t>(rows); low + 1 < by_row_.size()) {
    const double share = rows - static_cast<double>(low);
    return by_row_[low] + share * (by_row_[low + 1] - by_row_[low]);
  }
  return interpolate(points_, rows);
}

double ladder_threshold(double nanos_of_1, double nanos_of_16, double noise) {
  return std::max(nanos_of_16 - nanos_of_1, nanos_of_16 * noise);
}

std::vector<LadderPoint> search_ladder(const LadderSearch& search, const MeasureRows& measure) {
  CHECK(search.least_rows >= 1 && search.least_rows <= search.most_rows,
        "a ladder of {} to {} rows", search.least_rows, search.most_rows);
  std::map<int64_t, double> known;
  const auto time_of = [&](int64_t rows) {
    const auto found = known.find(rows);
    return found != known.end() ? found->second : known[rows] = measure(rows);
  };
  // A range whose ends are known, by how much they differ.
  struct Range {
    double difference = 0;
    int64_t low = 0;
    int64_t high = 0;
    bool operator<(const Range& other) const { return difference < other.difference; }
  };
  std::priority_queue<Range> steep;
  const auto look_at = [&](int64_t low, int64_t high) {
    const double difference = time_of(high) - time_of(low);
    if (high - low > 1 && difference > search.threshold_nanos) {
      steep.push({difference, low, high});
    }
  };
  look_at(search.least_rows, search.most_rows);
  while (!steep.empty() && static_cast<int64_t>(known.size()) + 2 <= search.points) {
    const Range range = steep.top();
    steep.pop();
    const int64_t middle = range.low + (range.high - range.low) / 2;
    look_at(range.low, middle);
    look_at(std::min(middle + 1, range.high), range.high);
  }
  std::vector<LadderPoint> points;
  points.reserve(known.size());
  for (const auto& [rows, nanos] : known) {
    points.push_back({rows, nanos});
  }
  return points;
}

}  // namespace tandem::latency
