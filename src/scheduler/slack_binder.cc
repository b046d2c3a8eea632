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

void SlackBinder::begin_step(const BindView& view) {
  step_ = view.step;
  began_ = view.now;
  // With lanes a launched group may end behind the last stage.
  stages_.assign(static_cast<size_t>(view.last_stage) + 2, Stage{});
  step_time_ = is_limited() ? model_.step_time(forecast_.shape) : Nanos{0};
}

// A step of visitors alone keeps nothing waiting, and must not wait for itself.
bool SlackBinder::is_limited() const {
  return forecast_.step == step_ && forecast_.limit != Nanos::max() && forecast_.shape.rows() > 0;
}

// Of a launched group, by the model. The next group has begun or is the one that is bound now, so
// it is known when its first stage begins. What a step takes before its first stage counts as part
// of its first group.
Nanos SlackBinder::time_of(int32_t first_stage, int32_t end_stage) const {
  const auto begins = [&](int32_t stage) {
    return stage == 0 ? Nanos{0} : stages_[static_cast<size_t>(stage)].begins;
  };
  Nanos time = begins(end_stage) - begins(first_stage);
  for (int32_t stage = first_stage; stage < end_stage; ++stage) {
    time += stages_[static_cast<size_t>(stage)].visits;
  }
  return time;
}

// How long the accelerator still computes what is launched. The oldest group may be overdue: then
// it ends at any moment.
Nanos SlackBinder::until_begin(const BindView& view) const {
  if (view.launched.empty()) {
    return view.first_stage == 0 ? stages_.front().begins : Nanos{0};
  }
  const LaunchedGroup& oldest = view.launched.front();
  const Nanos rest = time_of(oldest.first_stage, oldest.end_stage) - view.oldest_runs;
  return std::max(rest, Nanos{0}) + time_of(oldest.end_stage, view.first_stage);
}

Nanos SlackBinder::slack(const BindView& view) {
  if (!is_limited()) {
    return Nanos::max();
  }
  const Nanos begins = model_.time_before_stage(forecast_.shape, view.first_stage);
  stages_[static_cast<size_t>(view.first_stage)].begins = begins;
  return forecast_.limit - (view.now - began_) - until_begin(view) - (step_time_ - begins);
}

void SlackBinder::bind(const BindView& view, BindDecision& decision) {
  CHECK(view.ready.size() == view.credits.size(), "{} stages with visitors, {} with credits",
        view.ready.size(), view.credits.size());
  if (view.step != step_) {
    begin_step(view);
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
      const Nanos visits = model_.visit_time(at, joining);
      stages_[static_cast<size_t>(stage)].visits = visits;
      left -= visits;
    }
    take(line, joining);
    decision.visitors[i] = joining;
    routed += last ? 0 : joining;
  }
}

}  // namespace tandem
