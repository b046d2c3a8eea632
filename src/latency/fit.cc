#include "latency/fit.h"

#include <algorithm>
#include <map>
#include <utility>

#include "latency/least_squares.h"

namespace tandem::latency {
namespace {

// A ladder as a sum of steps that are not negative: the first is there from one row on, step k
// grows from knot k - 1 to knot k, the last also beyond.
void add_ladder(std::vector<double>& features, const std::vector<int64_t>& knots, int64_t rows) {
  features.push_back(rows > 0 ? 1 : 0);
  for (size_t k = 1; k < knots.size(); ++k) {
    const auto width = static_cast<double>(knots[k] - knots[k - 1]);
    const double grown = static_cast<double>(rows - knots[k - 1]) / width;
    const double most = k + 1 == knots.size() ? std::max(grown, 1.0) : 1.0;
    features.push_back(std::clamp(grown, 0.0, most));
  }
}

Result<Ladder> ladder_from(const std::vector<int64_t>& knots, std::span<const double> steps) {
  std::vector<LadderPoint> points;
  double nanos = 0;
  for (size_t k = 0; k < knots.size(); ++k) {
    nanos += steps[k];
    points.push_back({knots[k], nanos});
  }
  return Ladder::through(std::move(points));
}

// Where nothing is sampled the last layer's attention is left out.
double attended(const StepShape& shape, int32_t layers) {
  return shape.logit_rows > 0 ? 1.0 : static_cast<double>(layers - 1) / layers;
}

std::vector<double> features_of(const StepShape& shape, const ModelFacts& facts,
                                const LadderKnots& knots) {
  std::vector<double> features;
  add_ladder(features, knots.dense, shape.rows());
  add_ladder(features, knots.head, shape.logit_rows);
  const double share = attended(shape, facts.layers);
  for (const double value :
       {static_cast<double>(shape.prefill_pairs), static_cast<double>(shape.prefill_rows),
        static_cast<double>(shape.prefill_slices), shape.prefill_rows > 0 ? 1.0 : 0.0,
        static_cast<double>(shape.decode_context), static_cast<double>(shape.decode_rows),
        shape.decode_rows > 0 ? 1.0 : 0.0}) {
    features.push_back(share * value);
  }
  return features;
}

// Through the medians of the samples of each place.
template <class Place>
Result<Ladder> ladder_of_medians(std::span<const Sample> samples, const Place& place) {
  std::map<int64_t, std::vector<double>> times;
  for (const Sample& sample : samples) {
    times[place(sample.shape)].push_back(sample.nanos);
  }
  std::vector<LadderPoint> points;
  for (auto& [at, nanos] : times) {
    const auto middle = nanos.begin() + static_cast<std::ptrdiff_t>(nanos.size() / 2);
    std::ranges::nth_element(nanos, middle);
    points.push_back({at, *middle});
  }
  return Ladder::through(std::move(points));
}

}  // namespace

Result<ModularModel> fit_modular(std::span<const Sample> samples, const ModelFacts& facts,
                                 const LadderKnots& knots) {
  if (samples.empty() || knots.dense.empty() || knots.head.empty()) {
    return invalid_argument("nothing was measured, so there is nothing to fit");
  }
  std::vector<Equation> equations;
  equations.reserve(samples.size());
  for (const Sample& sample : samples) {
    if (sample.nanos > 0) {
      equations.push_back({features_of(sample.shape, facts, knots), sample.nanos});
    }
  }
  const size_t columns = features_of({}, facts, knots).size();
  const std::vector<double> found = fit_nonnegative(equations, std::vector<double>(columns, 0.0));
  const std::span<const double> all(found);
  ModularCosts costs;
  costs.layers = facts.layers;
  costs.first_stage_share = facts.first_stage_share;
  ASSIGN_OR_RETURN(costs.dense, ladder_from(knots.dense, all.first(knots.dense.size())));
  ASSIGN_OR_RETURN(costs.head, ladder_from(knots.head, all.subspan(knots.dense.size())));
  const std::span<const double> rest = all.subspan(knots.dense.size() + knots.head.size());
  costs.prefill = {.per_pair = rest[0], .per_row = rest[1], .per_slice = rest[2], .fixed = rest[3]};
  costs.decode = {.per_context = rest[4], .per_row = rest[5], .fixed = rest[6]};
  return ModularModel::create(std::move(costs));
}

Result<RegressionModel> fit_regression(std::span<const Sample> samples, int32_t layers) {
  std::vector<Equation> equations;
  for (const Sample& sample : samples) {
    if (sample.nanos > 0) {
      const auto features = RegressionModel::features(sample.shape);
      equations.push_back({{features.begin(), features.end()}, sample.nanos});
    }
  }
  const std::vector<double> found =
      fit_nonnegative(equations, std::vector<double>(RegressionModel::kFeatures, 0.0));
  return RegressionModel::create({.layers = layers,
                                  .fixed = found[0],
                                  .prefill_rows = found[1],
                                  .decode_context = found[2],
                                  .prefill_rows_squared = found[3],
                                  .decode_context_squared = found[4],
                                  .prefill_slices = found[5],
                                  .decode_rows = found[6],
                                  .prefix_products = found[7]});
}

Result<TableModel> fit_table(const TableSamples& grid, std::span<const Sample> samples,
                             int32_t layers) {
  TableCosts costs;
  costs.layers = layers;
  ASSIGN_OR_RETURN(costs.prefill, ladder_of_medians(grid.prefill, [](const StepShape& shape) {
                     return int64_t{shape.prefill_rows};
                   }));
  std::map<int64_t, std::vector<Sample>> rows;
  for (const Sample& sample : grid.decode) {
    rows[sample.shape.decode_rows].push_back(sample);
  }
  for (const auto& [sequences, own] : rows) {
    DecodeRow row{.sequences = sequences, .by_context = {}};
    ASSIGN_OR_RETURN(row.by_context, ladder_of_medians(own, [](const StepShape& shape) {
                       return shape.decode_context;
                     }));
    costs.decode.push_back(std::move(row));
  }
  // What chunks take beyond a whole prompt of as many rows.
  double products = 0;
  double beyond = 0;
  for (const Sample& sample : samples) {
    if (sample.shape.decode_rows == 0 && sample.shape.prefix_products > 0) {
      products += static_cast<double>(sample.shape.prefix_products);
      beyond += sample.nanos - costs.prefill.nanos(sample.shape.prefill_rows);
    }
  }
  costs.prefix_products = products > 0 ? std::max(beyond / products, 0.0) : 0;
  return TableModel::create(std::move(costs));
}

}  // namespace tandem::latency
