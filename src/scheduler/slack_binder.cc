#include "scheduler/slack_binder.h"

#include <algorithm>

#include "base/check.h"
#include "latency/questions.h"

namespace tandem {

SlackBinder::SlackBinder(const StepForecast& forecast, const latency::StepTimeModel& model,
                         int32_t patience_steps)
    : forecast_(forecast), model_(model), patience_steps_(patience_steps) {
  CHECK(patience_steps > 0, "visitors that wait for {} steps", patience_steps);
}

void SlackBinder::count(Line& line, int64_t step, int32_t ready) {
  int32_t known = 0;
  for (const Ready& one : line) {
    known += one.rows;
  }
  if (ready > known) {
    line.push_back({step, ready - known});
  } else {
    take(line, known - ready);  // they left otherwise: cancelled, or failed
  }
}

void SlackBinder::take(Line& line, int32_t rows) {
  while (rows > 0 && !line.empty()) {
    const int32_t taken = std::min(rows, line.front().rows);
    rows -= taken;
    line.front().rows -= taken;
    if (line.front().rows == 0) {
      line.pop_front();
    }
  }
}

int32_t SlackBinder::overdue(const Line& line, int64_t step) const {
  int32_t rows = 0;
  for (const Ready& one : line) {
    rows += step - one.step >= patience_steps_ ? one.rows : 0;
  }
  return rows;
}

Nanos SlackBinder::slack(const BindView& view) const {
  // A step of visitors alone keeps nobody waiting, and must not wait for itself.
  if (forecast_.step != view.step || forecast_.limit == Nanos::max() ||
      forecast_.shape.rows() == 0) {
    return Nanos::max();
  }
  const Nanos rest = model_.step_time(forecast_.shape) -
                     model_.time_before_stage(forecast_.shape, view.first_stage);
  return forecast_.limit - (view.now - began_) - rest;
}

void SlackBinder::bind(const BindView& view, BindDecision& decision) {
  CHECK(view.ready.size() == view.credits.size(), "{} stages with visitors, {} with credits",
        view.ready.size(), view.credits.size());
  if (view.step != step_) {
    step_ = view.step;
    began_ = view.now;
  }
  lines_.resize(static_cast<size_t>(view.last_stage) + 1);
  decision.visitors.assign(view.ready.size(), 0);
  int32_t owed = 0;  // credits, to overdue rows of the stages from here on
  for (size_t i = 0; i < view.ready.size(); ++i) {
    const int32_t stage = view.first_stage + static_cast<int32_t>(i);
    Line& line = lines_[static_cast<size_t>(stage)];
    count(line, view.step, view.ready[i]);
    owed += stage == view.last_stage ? 0 : overdue(line, view.step);
  }
  Nanos left = slack(view);
  int32_t routed = 0;  // hops that this group begins
  for (size_t i = 0; i < view.ready.size(); ++i) {
    const int32_t stage = view.first_stage + static_cast<int32_t>(i);
    const bool last = stage == view.last_stage;
    Line& line = lines_[static_cast<size_t>(stage)];
    const int32_t due = overdue(line, view.step);
    owed -= last ? 0 : due;
    const int32_t places =
        std::min(view.row_room, last ? view.logit_room : view.credits[i] - routed);
    const int32_t most = std::clamp(
        view.ready[i], 0, std::max({last ? places : places - owed, std::min(due, places), 0}));
    const latency::StageRows at{
        stage, last ? int64_t{forecast_.shape.logit_rows} : int64_t{view.resident_rows}};
    int32_t joining = most;
    if (left != Nanos::max()) {
      const auto in_time = static_cast<int32_t>(
          latency::visitors_within(model_, at, std::max(left, Nanos{0}), most));
      joining = std::min(most, std::max(in_time, due));
      left -= model_.visit_time(at, joining);
    }
    take(line, joining);
    decision.visitors[i] = joining;
    routed += last ? 0 : joining;
  }
}

}  // namespace tandem
