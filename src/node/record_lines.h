// The lines of a record that tell what the engine did: the recorder writes them, and a replay makes
// them again to compare. One encoder for both, so that what is recorded is what is compared.
//
// A line is one JSON object without the newline. Fields that only two tiers have are left out on
// one tier. Plain functions; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/recorder.h"

namespace tandem {

// What the policy saw, as a digest of this version (kViewDigestVersion in new records), and its
// plan; on two tiers with the step's mode, with lanes those of the first one, the stages of
// offloaded tokens if the policy was shown them, and both sides of the inequality, in thousandths
// and at most 10^9, if it weighed that.
std::string plan_line(const SystemView& view, const StepPlan& plan, int digest_version);

// `binds`: the step's bind entries, separated by commas; empty: none.
std::string result_line(const StepResult& result, const StepTimes& times, std::string_view binds);

std::string tiers_line(int64_t step, const TierEvents& events);

// One bind: what the binder was shown, and how many visitors it let join. Appended to `entries`,
// behind a comma if these are not empty.
void append_bind(std::string& entries, const BindView& view, const BindDecision& decision);

// What the binder was shown, read from a bind entry; the view borrows from the vectors.
struct RecordedBind {
  std::vector<int32_t> ready;
  std::vector<int32_t> coming;
  std::vector<int32_t> credits;
  std::vector<LaunchedGroup> launched;
  BindView view;
};
// The stages in a plan line, by sequence; none if it has no such field. A record may be forged: an
// error if a number is out of range. Throws as read_bind.
using RecordedStages = std::map<SequenceId, int32_t>;
Result<RecordedStages> read_stages(const nlohmann::json& plan, int32_t last_stage);

// What was counted of a step, read from its result line; absent numbers are 0. Errors and throws as
// read_stages.
struct RecordedCounts {
  int64_t visits = 0;
  SecondLane second;
  Nanos held{0};
  HostWork host;
};
Status read_counted(const nlohmann::json& result, RecordedCounts& out);

// Fills `out` for a step of a model with this last stage. A record may be forged: an error where
// the entry could not have been written. Throws nlohmann::json::exception where a field is missing
// or of another type.
Status read_bind(const nlohmann::json& entry, int64_t step, int32_t last_stage, RecordedBind& out);

}  // namespace tandem
