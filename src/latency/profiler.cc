#include "latency/profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "latency/ladder.h"
#include "latency/random_batch.h"

namespace tandem::latency {
namespace {

constexpr int32_t kSliceRows = 64;    // prompts of the dense ladder: little attention
constexpr int32_t kShortContext = 4;  // decodes of the last stage's ladder
constexpr double kNoise = 0.02;       // of the same batch, at best
constexpr int32_t kWarmUp = 8;
constexpr int64_t kTile = 16;  // Algorithm 1 compares its time with that of one row
// Measured however long they take: below, nothing tells what a row of a prompt costs.
constexpr int64_t kMinRows = 64;
constexpr int32_t kMinRandomBatches = 6;   // two of each regime
constexpr int32_t kMinHeldOutBatches = 4;  // one of them with as many rows as time allows
constexpr double kFarShare = 0.1;          // of the time, for one held-out batch of that kind
// Parts of the time, one after another.
constexpr double kDenseEnd = 0.35;
constexpr double kDecodesEnd = 0.42;
constexpr double kHeadEnd = 0.5;
constexpr double kGridEnd = 0.6;
constexpr double kRandomEnd = 0.85;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

class Profiler {
 public:
  Profiler(BatchMeter& meter, const ProfilerOptions& options, const Clock& clock,
           const ProfileProgress& progress)
      : meter_(meter),
        options_(options),
        clock_(clock),
        progress_(progress),
        limits_(meter.limits()),
        began_(clock.now()) {}

  Status run() {
    RETURN_IF_ERROR(find_most_rows());
    RETURN_IF_ERROR(measure_dense());
    RETURN_IF_ERROR(measure_head());
    RETURN_IF_ERROR(measure_ends());
    RETURN_IF_ERROR(measure_grid());
    RETURN_IF_ERROR(measure_random());
    return hold_out();
  }

  Result<Measured> fit(const ModelFacts& facts) const;

 private:
  [[nodiscard]] double gone() const {
    return to_seconds(clock_.now() - began_) / std::max(to_seconds(options_.time), 1e-9);
  }
  Result<double> time_of(const Batch& batch, std::string_view what) {
    if (progress_) {
      progress_(std::min(gone(), 1.0), what);
    }
    ASSIGN_OR_RETURN(const Nanos took, meter_.measure(batch));
    ++batches_;
    return std::max(static_cast<double>(took.count()), 1.0);
  }
  // The median of the repeats that fit the time up to `end`, at least one; all are learnt from.
  Result<double> sample(const Batch& batch, std::string_view what, double end) {
    std::vector<double> times;
    while (times.empty() ||
           (static_cast<int32_t>(times.size()) < options_.repeats && gone() < end)) {
      ASSIGN_OR_RETURN(const double nanos, time_of(batch, what));
      times.push_back(nanos);
      samples_.push_back({batch.shape(), nanos});
    }
    return median(std::move(times));
  }

  // Rows in prompts that go on, so that nothing is sampled.
  [[nodiscard]] Batch dense_batch(int64_t rows) const {
    Batch batch;
    const auto slice = static_cast<int64_t>(
        std::max({kSliceRows, limits_.rows / std::max(limits_.sequences, 1) + 1}));
    for (int64_t left = rows; left > 0; left -= slice) {
      const auto own = static_cast<int32_t>(std::min<int64_t>(left, slice));
      batch.prompts.push_back({.computed_tokens = 1, .rows = own, .logits = 0});
    }
    return batch;
  }
  [[nodiscard]] static Batch decode_batch(int64_t sequences, int64_t context) {
    Batch batch;
    batch.contexts.assign(static_cast<size_t>(sequences), static_cast<int32_t>(context));
    return batch;
  }
  // One whole prompt, or several where a context is too short.
  [[nodiscard]] Batch prompt_batch(int64_t rows) const {
    if (rows >= max_context(1)) {
      return dense_batch(rows);
    }
    Batch batch;
    batch.prompts.push_back({.rows = static_cast<int32_t>(rows), .logits = 1});
    return batch;
  }
  [[nodiscard]] bool possible(const Batch& batch) const { return check_batch(batch, limits_).ok(); }

  // The longest context that one sequence of such batches may have.
  [[nodiscard]] int64_t max_context(int64_t sequences) const;
  [[nodiscard]] int64_t far_rows() const;

  Status find_most_rows();
  Status measure_dense();
  Status measure_head();
  Status measure_logits();
  Status measure_ends();
  Status measure_grid();
  Status measure_random();
  Status hold_out();
  Status search(const LadderSearch& range, double end, std::string_view what,
                const std::function<Batch(int64_t)>& batch_of, std::vector<int64_t>& knots);

  BatchMeter& meter_;
  const ProfilerOptions& options_;
  const Clock& clock_;
  const ProfileProgress& progress_;
  BatchLimits limits_;
  const Nanos began_;

  int64_t batches_ = 0;
  int64_t most_rows_ = 1;
  double most_rows_nanos_ = 1;
  LadderKnots knots_;
  TableSamples grid_;
  std::vector<Sample> samples_;
  std::vector<HeldOut> held_out_;
};

// The number of rows up to which steps are measured: kMinRows, then four times as many for as long
// as the last try was short. These are points of the ladder also if no time is left for others:
// a line from 16 to 1,024 rows is far from the times between them.
Status Profiler::find_most_rows() {
  constexpr double kMostOfTime = 0.02;  // four times as many rows take four times as long at most
  const int32_t context = std::min(kShortContext, limits_.context);
  for (int32_t i = 0; i < kWarmUp && (i < 2 || gone() < kMostOfTime); ++i) {
    ASSIGN_OR_RETURN(const double unused, time_of(decode_batch(1, context), "warming up"));
    static_cast<void>(unused);
  }
  for (int64_t rows = 1;; rows = std::min<int64_t>(rows * 4, limits_.rows)) {
    const Batch batch = dense_batch(rows);
    if (!possible(batch)) {
      return {};
    }
    const Nanos before = clock_.now();
    ASSIGN_OR_RETURN(const double nanos, time_of(batch, "warming up"));
    samples_.push_back({batch.shape(), nanos});
    knots_.dense.push_back(rows);
    most_rows_ = rows;
    most_rows_nanos_ = nanos;
    const bool is_long =
        to_seconds(clock_.now() - before) > kMostOfTime * to_seconds(options_.time);
    if (rows == limits_.rows || (rows >= kMinRows && is_long)) {
      return {};
    }
  }
}

// Algorithm 1 over what `batch_of` makes of a number of rows.
Status Profiler::search(const LadderSearch& range, double end, std::string_view what,
                        const std::function<Batch(int64_t)>& batch_of,
                        std::vector<int64_t>& knots) {
  Status status;
  std::vector<LadderPoint> known;
  const auto measure = [&](int64_t rows) {
    const Batch batch = batch_of(rows);
    const bool required = rows == range.least_rows || rows == range.most_rows || rows == kTile;
    if (!status.ok() || (!required && (gone() > end || !possible(batch)))) {
      return std::nan("");  // no more questions are asked below
    }
    const Result<double> nanos = sample(batch, what, end);
    if (!nanos.ok()) {
      status = nanos.error();
      return std::nan("");
    }
    knots.push_back(rows);
    return *nanos;
  };
  LadderSearch own = range;
  const double at_one = measure(range.least_rows);
  const int64_t sixteen = std::min(kTile, range.most_rows);
  const double at_sixteen = sixteen > range.least_rows ? measure(sixteen) : at_one;
  own.threshold_nanos = ladder_threshold(at_one, at_sixteen, kNoise);
  static_cast<void>(search_ladder(own, [&](int64_t rows) {
    return rows == range.least_rows ? at_one : rows == sixteen ? at_sixteen : measure(rows);
  }));
  std::ranges::sort(knots);
  knots.erase(std::unique(knots.begin(), knots.end()), knots.end());
  return status;
}

Status Profiler::measure_dense() {
  return search(
      {.least_rows = 1, .most_rows = most_rows_, .points = options_.ladder_points}, kDenseEnd,
      "dense stages", [&](int64_t rows) { return dense_batch(rows); }, knots_.dense);
}

Status Profiler::measure_head() {
  const int32_t context = std::min(kShortContext, limits_.context);
  int64_t most = std::min<int64_t>(limits_.sequences, most_rows_);
  while (most > 1 && !possible(decode_batch(most, context))) {
    most /= 2;
  }
  RETURN_IF_ERROR(search(
      {.least_rows = 1, .most_rows = most, .points = options_.ladder_points / 2}, kDecodesEnd,
      "decodes", [&](int64_t rows) { return decode_batch(rows, context); }, knots_.head));
  return measure_logits();
}

// Every decode samples, so decodes alone do not tell what a row of the last stage costs from what a
// decode does. The same prompts once with and once without an end do. The largest come first: they
// say most.
Status Profiler::measure_logits() {
  const std::vector<int64_t>& rows = knots_.head;
  for (auto it = rows.rbegin(); it != rows.rend(); ++it) {
    for (const int32_t logits : {0, 1}) {
      Batch batch;
      batch.prompts.assign(static_cast<size_t>(*it),
                           {.computed_tokens = 1, .rows = 1, .logits = logits});
      if (possible(batch) && (it == rows.rbegin() || gone() < kHeadEnd)) {
        ASSIGN_OR_RETURN(const double unused, sample(batch, "logits", kHeadEnd));
        static_cast<void>(unused);
      }
    }
  }
  return {};
}

int64_t Profiler::max_context(int64_t sequences) const {
  const int64_t own = limits_.tokens / sequences / limits_.block_tokens * limits_.block_tokens;
  return std::min<int64_t>(limits_.context, own - 1);
}

// The largest batches of each kind of attention, however little time is left: without them the fit
// cannot tell attention from the work of a row.
Status Profiler::measure_ends() {
  const auto add = [&](const Batch& batch) -> Status {
    if (!possible(batch)) {
      return {};
    }
    ASSIGN_OR_RETURN(const double nanos, time_of(batch, "long contexts"));
    samples_.push_back({batch.shape(), nanos});
    return {};
  };
  const int64_t context = max_context(1);
  const int64_t rows = std::min(most_rows_, context - 1);
  for (const int64_t chunk : {rows, std::min(rows, kTile)}) {
    Batch batch;
    batch.prompts.push_back({.computed_tokens = static_cast<int32_t>(context - 1 - chunk),
                             .rows = static_cast<int32_t>(chunk),
                             .logits = 1});
    RETURN_IF_ERROR(add(batch));
  }
  RETURN_IF_ERROR(add(decode_batch(1, context)));
  const int64_t decodes = std::min<int64_t>({limits_.sequences, most_rows_, kMinRows});
  RETURN_IF_ERROR(add(decode_batch(decodes, max_context(decodes))));
  return far_rows() > most_rows_ ? add(prompt_batch(far_rows())) : Status{};
}

Status Profiler::measure_grid() {
  const auto add = [&](const Batch& batch, std::vector<Sample>& to) -> Status {
    if (!possible(batch) || batch.shape().rows() > most_rows_ ||
        (gone() > kGridEnd && to.size() > 1)) {
      return {};
    }
    ASSIGN_OR_RETURN(const double nanos, time_of(batch, "tables"));
    samples_.push_back({batch.shape(), nanos});
    to.push_back(samples_.back());
    return {};
  };
  for (int32_t rows = 1; rows < limits_.context; rows *= 4) {
    Batch batch;
    batch.prompts.push_back({.computed_tokens = 0, .rows = rows, .logits = 1});
    RETURN_IF_ERROR(add(batch, grid_.prefill));
  }
  for (int64_t sequences = 1; sequences <= limits_.sequences; sequences *= 4) {
    for (int64_t context = 16; context <= limits_.context; context *= 4) {
      RETURN_IF_ERROR(add(decode_batch(sequences, context), grid_.decode));
    }
  }
  if (grid_.decode.empty()) {
    RETURN_IF_ERROR(add(decode_batch(1, limits_.context), grid_.decode));
  }
  return {};
}

Status Profiler::measure_random() {
  BatchLimits limits = limits_;
  limits.rows = static_cast<int32_t>(most_rows_);
  RandomBatches random(limits, options_.seed);
  for (int32_t i = 0; i < options_.random_batches && (i < kMinRandomBatches || gone() < kRandomEnd);
       ++i) {
    const Batch batch = random.next(static_cast<Regime>(i % kRegimes));
    ASSIGN_OR_RETURN(const double nanos, time_of(batch, "random batches"));
    samples_.push_back({batch.shape(), nanos});
  }
  return {};
}

// How many rows a step may have that takes kFarShare of the time, if rows beyond those measured
// cost as much each as those up to there.
int64_t Profiler::far_rows() const {
  const double share = kFarShare * to_seconds(options_.time) * 1e9 / most_rows_nanos_;
  const double rows = static_cast<double>(most_rows_) * std::max(share, 1.0);
  return static_cast<int64_t>(std::min(rows, static_cast<double>(limits_.rows)));
}

// The models are judged by batches like those they learnt from. Where the server's steps may have
// more rows than were measured, every fourth batch has more: predictions of these are judged, too.
Status Profiler::hold_out() {
  BatchLimits limits = limits_;
  limits.rows = static_cast<int32_t>(most_rows_);
  RandomBatches random(limits, options_.seed + 1);
  const int64_t beyond = far_rows() - most_rows_;
  for (int32_t i = 0; i < options_.held_out_batches && (i < kMinHeldOutBatches || gone() < 1);
       ++i) {
    const bool far = beyond > 0 && i % 4 == 3;
    const Batch batch =
        far ? prompt_batch(most_rows_ + beyond * (1 + i / 4 % 3) / 4) : random.next();
    if (!possible(batch)) {
      continue;
    }
    ASSIGN_OR_RETURN(const double nanos, time_of(batch, "held-out batches"));
    ASSIGN_OR_RETURN(const double again, time_of(batch, "held-out batches"));
    held_out_.push_back({{batch.shape(), nanos}, again});
  }
  return {};
}

Result<Measured> Profiler::fit(const ModelFacts& facts) const {
  ASSIGN_OR_RETURN(const ModularModel modular, fit_modular(samples_, facts, knots_));
  ASSIGN_OR_RETURN(const RegressionModel regression, fit_regression(samples_, facts.layers));
  ASSIGN_OR_RETURN(const TableModel table, fit_table(grid_, samples_, facts.layers));
  const auto judge = [&](const StepTimeModel& model) {
    AccuracyMeter meter;
    for (const HeldOut& held : held_out_) {
      meter.add(static_cast<double>(model.step_time(held.sample.shape).count()), held.sample.nanos);
    }
    return meter.accuracy();
  };
  AccuracyMeter twice;
  for (const HeldOut& held : held_out_) {
    twice.add(held.again, held.sample.nanos);
  }
  return Measured{.modular = modular.costs(),
                  .regression = regression.costs(),
                  .table = table.costs(),
                  .modular_accuracy = judge(modular),
                  .regression_accuracy = judge(regression),
                  .table_accuracy = judge(table),
                  .repeatability = twice.accuracy(),
                  .batches = batches_,
                  .most_rows = static_cast<int32_t>(most_rows_),
                  .limits = limits_,
                  .held_out = held_out_};
}

}  // namespace

ProfilerOptions short_profile() {
  return {.time = std::chrono::seconds(12),
          .ladder_points = 20,
          .repeats = 2,
          .random_batches = 400,
          .held_out_batches = 20};
}

Result<Measured> measure_steps(BatchMeter& meter, const ModelFacts& facts,
                               const ProfilerOptions& options, const Clock& clock,
                               const ProfileProgress& progress) {
  const BatchLimits limits = meter.limits();
  if (limits.rows < 1 || limits.sequences < 1 || limits.context < 4 ||
      limits.tokens < 2 * int64_t{limits.block_tokens}) {
    return invalid_argument(fmt::format(
        "no batch to measure fits {} rows, {} sequences, a context of {} and {} tokens of KV",
        limits.rows, limits.sequences, limits.context, limits.tokens));
  }
  Profiler profiler(meter, options, clock, progress);
  RETURN_IF_ERROR(profiler.run());
  return profiler.fit(facts);
}

}  // namespace tandem::latency
