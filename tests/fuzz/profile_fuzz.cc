// A profile of step times: whatever is let in predicts times that are not negative and never fall
// as work is added, and comes back as it was written.
#include "fuzz/fuzz.h"
#include "latency/corrected_model.h"
#include "latency/profile.h"

namespace tandem {
namespace {

void check_model(const latency::StepTimeModel& model) {
  latency::StepShape shape;
  Nanos before{0};
  for (int32_t step = 0; step < 24; ++step) {
    if (step % 3 == 0) {
      shape.add_decode(int64_t{1} << step);
    } else {
      shape.add_prefill(step * 100, 1 << (step / 2), step % 2);
    }
    shape.visits += step;
    const Nanos time = model.step_time(shape);
    CHECK(time >= before, "step {}: {} ns after {}", step, time.count(), before.count());
    before = time;
    const int32_t stage = step % (model.layers() + 1);
    CHECK(model.time_before_stage(shape, stage) >= Nanos{0});
    CHECK(model.visit_time({.stage = stage, .rows = step}, step + 1) >= Nanos{0});
  }
}

}  // namespace

TANDEM_FUZZ_TARGET(input) {
  const Result<latency::Profile> profile = latency::parse_profile(input);
  if (!profile.ok()) {
    CHECK(!profile.error().message.empty());
    return;
  }
  for (const latency::TimeModel which :
       {latency::TimeModel::kModular, latency::TimeModel::kRegression,
        latency::TimeModel::kTable}) {
    auto model = make_time_model(*profile, which);
    CHECK(model.ok(), "{}", model.error().message);
    check_model(**model);
    check_model(latency::CorrectedModel(std::move(*model)));
  }
  const std::string text = profile_text(*profile);
  const Result<latency::Profile> again = latency::parse_profile(text);
  CHECK(again.ok() && profile_text(*again) == text, "{}",
        again.ok() ? "another text" : again.error().message);
}
}  // namespace tandem
