#include "latency/corrected_model.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "latency/coefficients.h"

namespace tandem::latency {
namespace {

// A factor moves by this share of what a step was off (in logarithms), faster at first.
constexpr double kSlowest = 1.0 / 32;
constexpr double kFirstSteps = 8;
// However far a step was off, it counts as no more than this: a stall says nothing about the model.
constexpr double kMostLogError = 0.25;

bool has_visitors(const StepShape& shape) { return shape.visits + shape.visitor_logits > 0; }

StepShape without_visitors(StepShape shape) {
  shape.visits = 0;
  shape.visitor_logits = 0;
  shape.has_lanes = false;
  shape.second_visits = 0;
  shape.second_stages = 0;
  shape.second_logits = 0;
  return shape;
}

StepShape without_prefill(StepShape shape) {
  shape.prefill_rows = 0;
  shape.prefill_slices = 0;
  shape.prefill_pairs = 0;
  shape.prefix_products = 0;
  shape.logit_rows = std::min(shape.logit_rows, shape.decode_rows);
  return shape;
}

StepShape without_decode(StepShape shape) {
  shape.logit_rows = std::max(shape.logit_rows - shape.decode_rows, 0);
  shape.decode_rows = 0;
  shape.decode_context = 0;
  return shape;
}

// A step of visitors alone is of the regime of decodes.
StepShape visitors_of(const StepShape& shape) {
  StepShape visitors;
  visitors.visits = shape.visits;
  visitors.visitor_logits = shape.visitor_logits;
  visitors.has_lanes = shape.has_lanes;
  visitors.second_visits = shape.second_visits;
  visitors.second_stages = shape.second_stages;
  visitors.second_logits = shape.second_logits;
  return visitors;
}

}  // namespace

CorrectedModel::CorrectedModel(std::unique_ptr<const StepTimeModel> model, double error)
    : model_(std::move(model)), error_(error) {
  CHECK(model_ != nullptr && error > 0, "no model to correct, or an error of {}", error);
}

CorrectedModel::Join CorrectedModel::join_of(const StepShape& shape) {
  if (shape.has_lanes) {
    return Join::kLanes;
  }
  return has_visitors(shape) ? Join::kGroups : Join::kNone;
}

double CorrectedModel::learnt(Regime regime, Join join) const {
  const Factor& own = factors_[index(regime, join)];
  if (join == Join::kLanes && own.observed.load(std::memory_order_relaxed) == 0) {
    return factors_[index(regime, Join::kNone)].value.load(std::memory_order_relaxed);
  }
  return own.value.load(std::memory_order_relaxed);
}

double CorrectedModel::times(const StepShape& shape, Regime regime, Join join) const {
  return static_cast<double>(model_->step_time(shape).count()) * factor(regime, join);
}

double CorrectedModel::residents(const StepShape& shape, Join join) const {
  const Regime regime = regime_of(shape);
  const double whole = times(shape, regime, join);
  if (regime != Regime::kMixed) {
    return whole;
  }
  return std::max({whole, times(without_prefill(shape), Regime::kDecode, join),
                   times(without_decode(shape), Regime::kPrefill, join)});
}

Nanos CorrectedModel::step_time(const StepShape& shape) const {
  const Join join = join_of(shape);
  if (join == Join::kNone) {
    return to_nanos(residents(shape, join));
  }
  double nanos = std::max(residents(shape, join), residents(without_visitors(shape), Join::kNone));
  if (regime_of(shape) == Regime::kPrefill) {
    nanos = std::max(nanos, times(visitors_of(shape), Regime::kDecode, join));
  }
  return to_nanos(nanos);
}

Nanos CorrectedModel::time_before_stage(const StepShape& shape, int32_t stage) const {
  const double before =
      static_cast<double>(model_->time_before_stage(shape, stage).count()) * correction(shape);
  return std::min(to_nanos(before), step_time(shape));
}

// Which regime the step will be of is not asked; visitors count as they did in the regime that
// makes them dearest.
Nanos CorrectedModel::visit_time(const StageRows& at, int64_t visitors) const {
  double dearest = 0;
  for (int regime = 0; regime < kRegimes; ++regime) {
    dearest = std::max(dearest, factor(static_cast<Regime>(regime), Join::kGroups));
  }
  return to_nanos(static_cast<double>(model_->visit_time(at, visitors).count()) * dearest);
}

std::optional<StepParts> CorrectedModel::parts(const StepShape& shape) const {
  std::optional<StepParts> parts = model_->parts(shape);
  if (!parts.has_value()) {
    return parts;
  }
  const double by = correction(shape);
  for (Nanos* part : {&parts->fixed, &parts->dense, &parts->prefill_attention,
                      &parts->decode_attention, &parts->head, &parts->visits}) {
    *part = to_nanos(static_cast<double>(part->count()) * by);
  }
  return parts;
}

void CorrectedModel::observe(const StepShape& shape, Nanos measured) {
  if (shape.rows() == 0 || measured <= Nanos{0}) {
    return;
  }
  const Nanos believed = model_->step_time(shape);
  if (believed <= Nanos{0}) {
    return;
  }
  Factor& factor = factors_[index(regime_of(shape), join_of(shape))];
  const double now = learnt(regime_of(shape), join_of(shape));
  const double off = std::log(static_cast<double>(measured.count()) /
                              (static_cast<double>(believed.count()) * now));
  const int64_t observed = factor.observed.load(std::memory_order_relaxed);
  const double rate = std::max(kSlowest, 1 / (kFirstSteps + static_cast<double>(observed)));
  const double next = now * std::exp(rate * std::clamp(off, -kMostLogError, kMostLogError));
  factor.value.store(std::clamp(next, kLeastCorrection, kMostCorrection),
                     std::memory_order_relaxed);
  factor.observed.store(observed + 1, std::memory_order_relaxed);
}

double CorrectedModel::correction(const StepShape& shape) const {
  return factor(regime_of(shape), join_of(shape));
}

std::string_view regime_name(Regime regime) {
  constexpr std::array<std::string_view, kRegimes> kNames = {"decode", "mixed", "prefill"};
  return kNames.at(static_cast<size_t>(regime));
}

}  // namespace tandem::latency
