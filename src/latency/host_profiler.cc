#include "latency/host_profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "latency/least_squares.h"

namespace tandem::latency {
namespace {

// Of the time: attention, then copies; steps take what they take.
constexpr double kAttentionEnd = 0.6;
constexpr double kCopiesEnd = 0.9;

// Copies are short: a few more cost nothing, however little time there is.
constexpr int32_t kLeastCopies = 9;

constexpr int32_t kResidents = 4;
constexpr int32_t kVisitors = 32;
constexpr int32_t kStepRounds = 5;

struct Point {
  int64_t first = 0;   // rows, or bytes
  int64_t second = 0;  // context of each row
  std::vector<double> nanos;
  [[nodiscard]] double median() const { return quantile(0.5); }
  // Of a busy machine's copies: what waited for a core says nothing of the link.
  [[nodiscard]] double lower_quartile() const { return quantile(0.25); }
  [[nodiscard]] double quantile(double share) const {
    std::vector<double> sorted = nanos;
    std::ranges::sort(sorted);
    return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size()))];
  }
};

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

class HostProfiler {
 public:
  HostProfiler(HostMeter& meter, const HostProfilerOptions& options, const Clock& clock,
               const ProfileProgress& progress)
      : meter_(meter),
        limits_(meter.limits()),
        options_(options),
        clock_(clock),
        progress_(progress),
        began_(clock.now()) {}

  Status measure_attention(MeasuredHost& measured) {
    std::vector<Point> points;
    for (int32_t rows = 1; rows <= limits_.rows; rows *= 4) {
      for (int32_t context = 32; context <= limits_.context; context *= 4) {
        if (int64_t{rows} * context <= limits_.tokens) {
          points.push_back({rows, context, {}});
        }
      }
    }
    if (points.empty()) {
      points.push_back({1, std::min<int64_t>(limits_.context, limits_.tokens), {}});
    }
    std::vector<Equation> busy;
    const auto measure = [&](const Point& point) -> Result<Nanos> {
      ASSIGN_OR_RETURN(
          const HostAttended attended,
          meter_.attention(static_cast<int32_t>(point.first), static_cast<int32_t>(point.second)));
      const auto rows = static_cast<double>(point.first);
      busy.push_back({{rows * static_cast<double>(point.second), rows},
                      std::max(1.0, static_cast<double>(attended.busy.count()))});
      return attended.took;
    };
    RETURN_IF_ERROR(repeat(points, 1, kAttentionEnd, "host attention", measure));
    const std::vector<double> at_work = fit_nonnegative(busy, {0.0, 0.0});
    measured.times.busy = {.per_context_nanos = at_work[0], .per_row_nanos = at_work[1]};
    std::vector<Equation> equations;
    for (const Point& point : points) {
      const auto rows = static_cast<double>(point.first);
      equations.push_back({{rows * static_cast<double>(point.second), rows, 1.0}, point.median()});
    }
    const std::vector<double> found = fit_nonnegative(equations, {0.0, 0.0, least(equations)});
    measured.times.attention = {
        .per_context_nanos = found[0], .per_row_nanos = found[1], .fixed_nanos = found[2]};
    measured.attention_accuracy = judge(equations, found);
    return {};
  }

  Status measure_links(MeasuredHost& measured) {
    AccuracyMeter accuracy;
    for (const LinkWay way : {LinkWay::kToHost, LinkWay::kFromHost}) {
      std::vector<Point> points;
      for (int64_t bytes = int64_t{1} << 12; bytes <= limits_.copy_bytes; bytes *= 4) {
        points.push_back({bytes, 0, {}});
      }
      if (points.size() < 2) {
        points = {{limits_.copy_bytes / 2, 0, {}}, {limits_.copy_bytes, 0, {}}};
      }
      const bool out = way == LinkWay::kToHost;
      const double end = out ? (kAttentionEnd + kCopiesEnd) / 2 : kCopiesEnd;
      RETURN_IF_ERROR(repeat(points, kLeastCopies, end, "copies",
                             [&](const Point& point) { return meter_.copy(way, point.first); }));
      std::vector<Equation> equations;
      for (const Point& point : points) {
        equations.push_back({{1.0, static_cast<double>(point.first)}, point.lower_quartile()});
      }
      const std::vector<double> found = fit_nonnegative(equations, {least(equations), 0.0});
      AlphaBeta& link = out ? measured.times.to_host : measured.times.from_host;
      link = {.alpha_nanos = found[0], .beta_nanos = found[1]};
      for (const Equation& equation : equations) {
        accuracy.add(predicted(equation, found), equation.value);
      }
    }
    measured.link_accuracy = accuracy.accuracy();
    return {};
  }

  // On a busy machine the host's workers may be held up, and no token comes back in time for a
  // step.
  Result<TierSteps> steps_with_visits(int32_t residents, int32_t visitors) {
    constexpr int32_t kTries = 20;
    for (int32_t i = 0; i < kTries; ++i) {
      ASSIGN_OR_RETURN(const TierSteps visited, meter_.steps(residents, visitors));
      if (visited.visits > 0) {
        return visited;
      }
    }
    return Error{ErrorCode::kUnavailable,
                 "no offloaded token came back from the host while its times were measured; the "
                 "machine is too busy: end other programs, or give the host more cores",
                 ""};
  }

  // With visitors and without in turn, so that a machine that is busy for a while counts for both.
  Status measure_visits(const ModularCosts& costs, MeasuredHost& measured) {
    ModularCosts bare = costs;
    bare.per_visit = 0;
    ASSIGN_OR_RETURN(const ModularModel model, ModularModel::create(bare));
    const int32_t residents = std::min(kResidents, limits_.residents);
    const int32_t visitors = std::min(kVisitors, limits_.visitors);
    std::vector<double> groups;
    std::vector<double> lane_stages;
    std::vector<double> engine_visits;
    std::vector<double> visits;
    for (int32_t round = 0; round < kStepRounds; ++round) {
      show(kCopiesEnd + (1 - kCopiesEnd) * round / kStepRounds, "visitors");
      ASSIGN_OR_RETURN(const TierSteps alone, meter_.steps(residents, 0));
      ASSIGN_OR_RETURN(const TierSteps visited, steps_with_visits(residents, visitors));
      if (alone.groups <= 0) {
        return Error{ErrorCode::kInternal, "steps without groups of stages were measured", ""};
      }
      ASSIGN_OR_RETURN(const TierSteps lanes, meter_.lane_steps(residents));
      groups.push_back(alone.engine_nanos / alone.groups);
      lane_stages.push_back(lanes.engine_nanos / std::max(lanes.groups, 1.0));
      measured.times.hop = visited.hop;
      engine_visits.push_back((visited.engine_nanos - alone.engine_nanos) / visited.visits);
      StepShape shape;
      for (int32_t i = 0; i < residents; ++i) {
        shape.add_decode(static_cast<int64_t>(alone.resident_context) / residents);
      }
      const Nanos without = model.step_time(shape);
      shape.visits = static_cast<int64_t>(visited.visits);
      const auto rows = static_cast<double>((model.step_time(shape) - without).count());
      visits.push_back((visited.step_nanos - alone.step_nanos - rows) / visited.visits);
    }
    measured.times.launch = {.per_group_nanos = std::max(0.0, median_of(groups)),
                             .per_visit_nanos = std::max(0.0, median_of(engine_visits)),
                             .per_lane_stage_nanos = std::max(0.0, median_of(lane_stages))};
    measured.per_visit = std::max(0.0, median_of(visits));
    return {};
  }

 private:
  [[nodiscard]] double gone() const {
    return static_cast<double>((clock_.now() - began_).count()) /
           static_cast<double>(std::max<int64_t>(options_.time.count(), 1));
  }
  void show(double share, const char* what) const {
    if (progress_) {
      progress_(std::clamp(share, 0.0, 1.0), what);
    }
  }
  static double predicted(const Equation& equation, const std::vector<double>& coefficients) {
    double sum = 0;
    for (size_t i = 0; i < coefficients.size(); ++i) {
      sum += equation.features[i] * coefficients[i];
    }
    return sum;
  }
  // Where the search begins: as if nothing grew.
  static double least(const std::vector<Equation>& equations) {
    return std::ranges::min(equations, {}, &Equation::value).value;
  }
  static Accuracy judge(const std::vector<Equation>& equations,
                        const std::vector<double>& coefficients) {
    AccuracyMeter meter;
    for (const Equation& equation : equations) {
      meter.add(predicted(equation, coefficients), equation.value);
    }
    return meter.accuracy();
  }

  // All points, then all again, so that none is measured in one bad moment. Each `least` times,
  // also when the time is gone.
  template <class Measure>
  Status repeat(std::vector<Point>& points, int32_t least, double end, const char* what,
                const Measure& measure) {
    const int32_t passes = std::max(least, options_.repeats);
    for (int32_t pass = 0; pass < passes && (pass < least || gone() < end); ++pass) {
      for (Point& point : points) {
        show(gone(), what);
        ASSIGN_OR_RETURN(const Nanos took, measure(point));
        point.nanos.push_back(std::max(1.0, static_cast<double>(took.count())));
      }
    }
    return {};
  }

  HostMeter& meter_;
  const HostLimits limits_;
  const HostProfilerOptions& options_;
  const Clock& clock_;
  const ProfileProgress& progress_;
  const Nanos began_;
};

}  // namespace

Result<MeasuredHost> measure_host(HostMeter& meter, const ModularCosts& costs,
                                  const HostProfilerOptions& options, const Clock& clock,
                                  const ProfileProgress& progress) {
  const HostLimits limits = meter.limits();
  if (limits.rows < 1 || limits.context < 1 || limits.tokens < 1 || limits.copy_bytes < 2 ||
      limits.residents < 1 || limits.visitors < 1) {
    return invalid_argument(fmt::format(
        "nothing of the second tier can be measured with {} rows, a context of {}, {} tokens, "
        "copies of {} bytes, {} residents and {} visitors",
        limits.rows, limits.context, limits.tokens, limits.copy_bytes, limits.residents,
        limits.visitors));
  }
  MeasuredHost measured;
  HostProfiler profiler(meter, options, clock, progress);
  RETURN_IF_ERROR(profiler.measure_attention(measured));
  RETURN_IF_ERROR(profiler.measure_links(measured));
  RETURN_IF_ERROR(profiler.measure_visits(costs, measured));
  return measured;
}

}  // namespace tandem::latency
