// SLINFER's predictor (VI): tables and interpolation. Prompts by length; decodes by number and mean
// length, interpolated between the four nearest measured points. What SLINFER never runs, a step of
// prompts and decodes, counts as both one after the other; rows after a prefix pay for each token
// before them.
//
// Rows of the decode table are kept as lines over the *sum* of lengths, and a larger number never
// lies below a smaller one: so it is monotone, and at the measured points it is the table.
//
// It knows no stages: what it says of them is the step's time in equal parts; a visitor counts as a
// decode of no length. Immutable; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "latency/ladder.h"
#include "latency/step_time_model.h"

namespace tandem::latency {

// Decodes of one number of sequences, by the sum of their contexts.
struct DecodeRow {
  int64_t sequences = 0;
  Ladder by_context;
};

struct TableCosts {
  int32_t layers = 1;
  Ladder prefill;                 // by rows: a whole prompt
  double prefix_products = 0;     // nanoseconds for a row and a token before it
  std::vector<DecodeRow> decode;  // by rising number of sequences, at least one
};

class TableModel final : public StepTimeModel {
 public:
  // An error names what is missing, negative, not finite or out of order.
  static Result<TableModel> create(TableCosts costs);

  [[nodiscard]] std::string_view name() const override { return "table"; }
  [[nodiscard]] int32_t layers() const override { return costs_.layers; }
  [[nodiscard]] Nanos step_time(const StepShape& shape) const override;
  [[nodiscard]] Nanos time_before_stage(const StepShape& shape, int32_t stage) const override;
  [[nodiscard]] Nanos visit_time(const StageRows& at, int64_t visitors) const override;

  [[nodiscard]] const TableCosts& costs() const { return costs_; }

  static constexpr size_t kMostRows = 64;  // of the decode table

 private:
  explicit TableModel(TableCosts costs) : costs_(std::move(costs)) {}
  [[nodiscard]] double decode(double sequences, double context) const;
  [[nodiscard]] double beyond(double sequences, double context) const;

  TableCosts costs_;
};

}  // namespace tandem::latency
