#include "latency/table_model.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "latency/coefficients.h"

namespace tandem::latency {

Result<TableModel> TableModel::create(TableCosts costs) {
  RETURN_IF_ERROR(check_layers(costs.layers));
  RETURN_IF_ERROR(check_coefficient("prefix_products", costs.prefix_products, kMostRowNanos));
  if (costs.prefill.points().empty() || costs.decode.empty() || costs.decode.size() > kMostRows) {
    return invalid_argument(
        fmt::format("a table of {} prompts and {} rows of decodes; it must "
                    "have at least one of each and at most {} rows",
                    costs.prefill.points().size(), costs.decode.size(), kMostRows));
  }
  RETURN_IF_ERROR(check_coefficient("prefill", costs.prefill.points().back().nanos, kMostNanos));
  int64_t before = 0;
  for (const DecodeRow& row : costs.decode) {
    if (row.sequences <= before || row.sequences > Ladder::kMostRows ||
        row.by_context.points().empty()) {
      return invalid_argument(fmt::format(
          "a row of {} decodes with {} points after one of {}; rows must rise and have points",
          row.sequences, row.by_context.points().size(), before));
    }
    RETURN_IF_ERROR(check_coefficient("decode", row.by_context.points().back().nanos, kMostNanos));
    before = row.sequences;
  }
  return TableModel(std::move(costs));
}

double TableModel::decode(double sequences, double context) const {
  if (sequences <= 0) {
    return 0;
  }
  if (sequences > static_cast<double>(costs_.decode.back().sequences)) {
    return beyond(sequences, context);
  }
  // The nearest rows below and above; none below: the first row holds.
  double low = 0;
  double high = 0;
  double low_count = 0;
  double high_count = 0;
  for (const DecodeRow& row : costs_.decode) {
    low = high;
    low_count = high_count;
    high = std::max(low, row.by_context.nanos(std::max(context, 1.0)));
    high_count = static_cast<double>(row.sequences);
    if (high_count >= sequences) {
      break;
    }
  }
  if (low_count == 0) {
    return high;
  }
  return low + (high - low) * (sequences - low_count) / (high_count - low_count);
}

// What a sequence adds beyond the last row is taken where that row begins, for all contexts: the
// difference of two rows may shrink with the context, and so would the sum, the more the further
// out.
double TableModel::beyond(double sequences, double context) const {
  const auto last_count = static_cast<double>(costs_.decode.back().sequences);
  const double last = decode(last_count, context);
  if (costs_.decode.size() == 1) {
    return last * sequences / last_count;
  }
  const auto low_count = static_cast<double>(costs_.decode.end()[-2].sequences);
  const auto begin = static_cast<double>(costs_.decode.back().by_context.points().front().rows);
  const double slope =
      (decode(last_count, begin) - decode(low_count, begin)) / (last_count - low_count);
  return last + slope * (sequences - last_count);
}

Nanos TableModel::step_time(const StepShape& shape) const {
  if (shape.empty()) {
    return Nanos{0};
  }
  const double visitors =
      (static_cast<double>(shape.visits) + shape.visitor_logits) / (costs_.layers + 1);
  return to_nanos(costs_.prefill.nanos(shape.prefill_rows) +
                  costs_.prefix_products * static_cast<double>(shape.prefix_products) +
                  decode(shape.decode_rows + visitors, static_cast<double>(shape.decode_context)));
}

Nanos TableModel::time_before_stage(const StepShape& shape, int32_t stage) const {
  CHECK(stage >= 0 && stage <= costs_.layers, "stage {} of a model of {} layers", stage,
        costs_.layers);
  return share_of(step_time(shape), stage, costs_.layers + 1);
}

Nanos TableModel::visit_time(const StageRows& at, int64_t visitors) const {
  CHECK(at.stage >= 0 && at.stage <= costs_.layers, "stage {} of a model of {} layers", at.stage,
        costs_.layers);
  if (visitors <= 0) {
    return Nanos{0};
  }
  const auto rows = static_cast<double>(at.rows);
  const double more = decode(rows + static_cast<double>(visitors), 1) - decode(rows, 1);
  return to_nanos(std::max(more, 0.0) / (costs_.layers + 1));
}

}  // namespace tandem::latency
