#include "latency/modular_model.h"

#include <utility>

#include "base/check.h"
#include "latency/coefficients.h"

namespace tandem::latency {
namespace {

Status check(std::string_view what, const Ladder& ladder) {
  if (ladder.points().empty()) {
    return {};
  }
  return check_coefficient(what, ladder.points().back().nanos, kMostNanos);
}

Ladder straight(double at_one, double per_row) {
  Result<Ladder> ladder = Ladder::through({{1, at_one}, {1001, at_one + 1000 * per_row}});
  CHECK(ladder.ok(), "{}", ladder.error().message);
  return *ladder;
}

}  // namespace

Result<ModularModel> ModularModel::create(ModularCosts costs) {
  RETURN_IF_ERROR(check_layers(costs.layers));
  RETURN_IF_ERROR(check_coefficient("fixed", costs.fixed, kMostNanos));
  RETURN_IF_ERROR(check("dense", costs.dense));
  RETURN_IF_ERROR(check("head", costs.head));
  RETURN_IF_ERROR(check_coefficient("first_stage_share", costs.first_stage_share, 1));
  RETURN_IF_ERROR(check_coefficient("prefill.per_pair", costs.prefill.per_pair, kMostRowNanos));
  RETURN_IF_ERROR(check_coefficient("prefill.per_row", costs.prefill.per_row, kMostRowNanos));
  RETURN_IF_ERROR(check_coefficient("prefill.per_slice", costs.prefill.per_slice, kMostRowNanos));
  RETURN_IF_ERROR(check_coefficient("prefill.fixed", costs.prefill.fixed, kMostNanos));
  RETURN_IF_ERROR(check_coefficient("decode.per_context", costs.decode.per_context, kMostRowNanos));
  RETURN_IF_ERROR(check_coefficient("decode.per_row", costs.decode.per_row, kMostRowNanos));
  RETURN_IF_ERROR(check_coefficient("decode.fixed", costs.decode.fixed, kMostNanos));
  RETURN_IF_ERROR(check_coefficient("per_visit", costs.per_visit, kMostRowNanos));
  RETURN_IF_ERROR(check_coefficient("collective.alpha", costs.collective.alpha_nanos, kMostNanos));
  RETURN_IF_ERROR(check_coefficient("collective.beta", costs.collective.beta_nanos, kMostRowNanos));
  if (costs.layers == 1) {
    costs.first_stage_share = 1;
  }
  return ModularModel(std::move(costs));
}

double ModularModel::dense(double rows) const {
  return costs_.dense.nanos(rows) + costs_.layers * costs_.collective.nanos(rows);
}

// A stage's visitors share its products with the residents; spread evenly over the stages. The
// second lane has products of its own at the stages that it visits, and reads the weights again.
double ModularModel::dense(const StepShape& shape) const {
  const double beside = static_cast<double>(shape.visits - shape.second_visits) / costs_.layers;
  const double first = dense(static_cast<double>(shape.rows()) + beside);
  if (shape.second_stages == 0) {
    return first;
  }
  const double second = static_cast<double>(shape.second_visits) / shape.second_stages;
  return first + dense(second) * shape.second_stages / costs_.layers;
}

double ModularModel::head(const StepShape& shape) const {
  const double beside = double{1} * shape.visitor_logits - shape.second_logits;
  return costs_.head.nanos(shape.logit_rows + beside) + costs_.head.nanos(shape.second_logits);
}

double ModularModel::attention(const StepShape& shape) const {
  double nanos = 0;
  if (shape.prefill_rows > 0) {
    const PrefillAttention& prefill = costs_.prefill;
    nanos += prefill.fixed + prefill.per_pair * static_cast<double>(shape.prefill_pairs) +
             prefill.per_row * shape.prefill_rows + prefill.per_slice * shape.prefill_slices;
  }
  if (shape.decode_rows > 0) {
    const DecodeAttention& decode = costs_.decode;
    nanos += decode.fixed + decode.per_context * static_cast<double>(shape.decode_context) +
             decode.per_row * shape.decode_rows;
  }
  // Nobody reads the last layer's attention where nothing is sampled.
  return shape.logit_rows > 0 ? nanos : nanos * (costs_.layers - 1) / costs_.layers;
}

double ModularModel::share_before(int32_t stage) const {
  if (stage == 0) {
    return 0;
  }
  return costs_.layers == 1 ? 1
                            : costs_.first_stage_share + (1 - costs_.first_stage_share) *
                                                             (stage - 1) / (costs_.layers - 1);
}

double ModularModel::share_of(int32_t stage) const {
  return share_before(stage + 1) - share_before(stage);
}

Nanos ModularModel::step_time(const StepShape& shape) const {
  if (shape.empty()) {
    return Nanos{0};
  }
  if (shape.visits == 0 && shape.visitor_logits == 0 && shape.second_stages == 0) {
    // The same sum without what is zero: admission asks thousands of times for steps of residents.
    return to_nanos(costs_.fixed + dense(static_cast<double>(shape.rows())) + attention(shape) +
                    costs_.head.nanos(shape.logit_rows));
  }
  const double visits = static_cast<double>(shape.visits) + shape.visitor_logits;
  return to_nanos(costs_.fixed + dense(shape) + attention(shape) + costs_.per_visit * visits +
                  head(shape));
}

Nanos ModularModel::time_before_stage(const StepShape& shape, int32_t stage) const {
  CHECK(stage >= 0 && stage <= costs_.layers, "stage {} of a model of {} layers", stage,
        costs_.layers);
  if (shape.empty()) {
    return Nanos{0};
  }
  const double visitors = static_cast<double>(shape.visits) / costs_.layers;
  const double share = share_before(stage);
  return to_nanos(costs_.fixed + share * dense(shape) + attention(shape) * stage / costs_.layers +
                  costs_.per_visit * visitors * stage);
}

Nanos ModularModel::visit_time(const StageRows& at, int64_t visitors) const {
  CHECK(at.stage >= 0 && at.stage <= costs_.layers, "stage {} of a model of {} layers", at.stage,
        costs_.layers);
  if (visitors <= 0) {
    return Nanos{0};
  }
  const auto rows = static_cast<double>(at.rows);
  const auto more = static_cast<double>(visitors);
  const double added = at.stage == costs_.layers
                           ? costs_.head.nanos(rows + more) - costs_.head.nanos(rows)
                           : share_of(at.stage) * (dense(rows + more) - dense(rows));
  return to_nanos(added + costs_.per_visit * more);
}

std::optional<StepParts> ModularModel::parts(const StepShape& shape) const {
  if (shape.empty()) {
    return StepParts{};
  }
  const double visits = static_cast<double>(shape.visits) + shape.visitor_logits;
  StepShape prefill = shape;  // all layers attend where something is sampled
  prefill.decode_rows = 0;
  prefill.logit_rows = 1;
  StepShape decode = shape;
  decode.prefill_rows = 0;
  decode.logit_rows = 1;
  return StepParts{.fixed = to_nanos(costs_.fixed),
                   .dense = to_nanos(dense(shape) / costs_.layers),
                   .prefill_attention = to_nanos(attention(prefill) / costs_.layers),
                   .decode_attention = to_nanos(attention(decode) / costs_.layers),
                   .head = to_nanos(head(shape)),
                   .visits = to_nanos(costs_.per_visit * visits)};
}

ModularModel simple_model(const SimpleCosts& simple) {
  ModularCosts costs;
  costs.layers = simple.layers;
  costs.fixed = static_cast<double>(simple.fixed.count());
  const auto per_row = static_cast<double>(simple.per_row.count());
  costs.dense = straight(per_row, per_row);
  costs.first_stage_share = 1.0 / simple.layers;
  const auto per_logit = static_cast<double>(simple.per_logit.count());
  costs.head = straight(per_logit, per_logit);
  costs.decode.per_context = simple.per_context_nanos;
  costs.prefill.per_pair = simple.per_pair_nanos;
  Result<ModularModel> model = ModularModel::create(std::move(costs));
  CHECK(model.ok(), "{}", model.error().message);
  return *std::move(model);
}

}  // namespace tandem::latency
