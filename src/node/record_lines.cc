#include "node/record_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/json_values.h"
#include "node/request_json.h"

namespace tandem {
namespace {

int64_t number_of(int32_t number) { return number; }
int64_t number_of(int64_t id) { return id; }
int64_t number_of(SequenceId id) { return raw(id); }
int64_t number_of(BlockId id) { return raw(id); }

template <class Id>
void append_numbers(std::string& line, std::span<const Id> ids) {
  line += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    fmt::format_to(std::back_inserter(line), "{}{}", i == 0 ? "" : ",", number_of(ids[i]));
  }
  line += ']';
}

template <class Id>
void append_ids(std::string& line, const std::vector<Id>& ids) {
  append_numbers(line, std::span<const Id>(ids));
}

// Left out where there are none, so that records of one tier do not speak of two.
template <class Id>
void append_some(std::string& line, const char* name, const std::vector<Id>& ids) {
  if (!ids.empty()) {
    fmt::format_to(std::back_inserter(line), ",\"{}\":", name);
    append_ids(line, ids);
  }
}

void append_tokens(std::string& line, const std::vector<SampledToken>& samples) {
  line += '[';
  for (size_t i = 0; i < samples.size(); ++i) {
    fmt::format_to(std::back_inserter(line), "{}[{},{}]", i == 0 ? "" : ",",
                   raw(samples[i].sequence), samples[i].token);
  }
  line += ']';
}

void append_lane_moves(std::string& line, std::span<const LaneMove> moves) {
  if (moves.empty()) {
    return;
  }
  line += R"(,"lane_moves":[)";
  for (size_t i = 0; i < moves.size(); ++i) {
    fmt::format_to(std::back_inserter(line), "{}[{},{}]", i == 0 ? "" : ",", raw(moves[i].sequence),
                   moves[i].lane);
  }
  line += "]";
}

// Only on two tiers do steps have modes.
void append_mode(std::string& line, const StepPlan& plan) {
  const bool has_lanes = plan.mode == StepMode::kLanes;
  fmt::format_to(std::back_inserter(line), R"(,"mode":"{}")", has_lanes ? "lanes" : "groups");
  if (has_lanes) {
    line += R"(,"first_lane":)";
    append_ids(line, plan.first_lane);
  }
}

// Only policies that read stages are shown them.
void append_stages(std::string& line, std::span<const SequenceView> offloaded) {
  bool is_first = true;
  for (const SequenceView& sequence : offloaded) {
    if (sequence.stage >= 0) {
      fmt::format_to(std::back_inserter(line), "{}[{},{}]", is_first ? R"(,"stages":[)" : ",",
                     raw(sequence.id), sequence.stage);
      is_first = false;
    }
  }
  line += is_first ? "" : "]";
}

void append_work(std::string& line, const HostWork& work) {
  if (work != HostWork{}) {
    fmt::format_to(std::back_inserter(line), R"(,"host":[{},{},{}])", work.busy.count(), work.rows,
                   work.context);
  }
}

// Whole numbers are the same in every encoder. Ratios beyond a million are as good as infinite.
int64_t in_thousandths(double ratio) {
  return static_cast<int64_t>(std::clamp(ratio, 0.0, 1e6) * 1000);
}

constexpr int64_t kMaxBindNanos = int64_t{1} << 60;  // a few of them add up
constexpr int64_t kMaxBindRows = int64_t{1} << 24;
constexpr int64_t kMaxCount = int64_t{1} << 32;  // of one step: sums do not overflow
constexpr int64_t kMaxWork = int64_t{1} << 50;

Status read_triple(const nlohmann::json& line, const char* key, int64_t max,
                   std::array<int64_t, 3>& out) {
  const nlohmann::json& numbers = line.at(key);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = numbers.size() == out.size() ? json_integer(numbers.at(i)).value_or(-1) : -1;
    if (out[i] < 0 || out[i] > max) {
      return invalid_argument(fmt::format("'{}' of a result has a number out of range", key));
    }
  }
  return {};
}

Status read_counts(const nlohmann::json& entry, const char* key, size_t size, int64_t max,
                   std::vector<int32_t>& out) {
  out.clear();
  for (const nlohmann::json& count : entry.at(key)) {
    const std::optional<int64_t> number = json_integer(count);
    if (!number || *number < 0 || *number > max) {
      return invalid_argument(fmt::format("'{}' of a bind has a count out of range", key));
    }
    out.push_back(static_cast<int32_t>(*number));
  }
  if (out.empty() || (size > 0 && out.size() != size)) {
    return invalid_argument(fmt::format("'{}' of a bind has {} counts", key, out.size()));
  }
  return {};
}

// Groups follow each other, and all of them are before the one that is bound. With lanes a stage is
// a group of each lane.
Status read_launched(const nlohmann::json& entry, RecordedBind& out) {
  out.launched.clear();
  if (!entry.contains("launched")) {
    return {};
  }
  for (const nlohmann::json& group : entry.at("launched")) {
    const int64_t first = json_integer(group.at(0)).value_or(-1);
    const int64_t end = json_integer(group.at(1)).value_or(-1);
    const bool is_after = out.launched.empty() || out.launched.back().first_stage <= first;
    const int64_t max_end =
        int64_t{out.view.first_stage} + (out.view.mode == StepMode::kLanes ? 1 : 0);
    if (first < 0 || first >= end || end > max_end || !is_after) {
      return invalid_argument("the launched groups of a bind are out of order");
    }
    out.launched.push_back({static_cast<int32_t>(first), static_cast<int32_t>(end)});
  }
  return {};
}

}  // namespace

std::string plan_line(const SystemView& view, const StepPlan& plan, int digest_version) {
  std::string line = fmt::format(R"({{"plan":{},"now":{},"view":"{:016x}","preempt":)", view.step,
                                 view.now.count(), view_digest(view, digest_version));
  append_ids(line, plan.preempt);
  line += R"(,"admit":)";
  append_ids(line, plan.admit);
  line += R"(,"slices":[)";
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    fmt::format_to(std::back_inserter(line), "{}[{},{}]", i == 0 ? "" : ",",
                   raw(plan.slices[i].sequence), plan.slices[i].tokens);
  }
  line += "]";
  if (view.ready >= 0) {
    fmt::format_to(std::back_inserter(line), R"(,"ready":{})", view.ready);
  }
  if (plan.step_budget > Nanos{0}) {
    fmt::format_to(std::back_inserter(line), R"(,"step_budget_ns":{})", plan.step_budget.count());
  }
  append_some(line, "straight_to_host", plan.straight_to_host);
  append_some(line, "offload", plan.offload);
  append_some(line, "onload", plan.onload);
  append_some(line, "write_through", plan.write_through);
  append_some(line, "second_lane", plan.second_lane);
  append_some(line, "hold", plan.hold);
  append_lane_moves(line, plan.lane_moves);
  append_some(line, "let_in", plan.let_in);
  append_stages(line, view.offloaded);
  if (plan.inequality.has_value()) {
    fmt::format_to(std::back_inserter(line), R"(,"inequality":[{},{}])",
                   in_thousandths(plan.inequality->rate_ratio),
                   in_thousandths(plan.inequality->bound));
  }
  if (view.budget.host_total_blocks > 0) {
    append_mode(line, plan);
  }
  line += "}";
  return line;
}

std::string result_line(const StepResult& result, const StepTimes& times, std::string_view binds) {
  std::string line = fmt::format(R"({{"result":{},"ns":{})", result.step, times.measured.count());
  if (times.predicted > Nanos{0}) {
    fmt::format_to(std::back_inserter(line), R"(,"predicted_ns":{})", times.predicted.count());
  }
  if (result.visits > 0) {
    fmt::format_to(std::back_inserter(line), R"(,"visits":{})", result.visits);
  }
  if (const SecondLane& second = result.second; second.stages > 0 || second.logits > 0) {
    fmt::format_to(std::back_inserter(line), R"(,"second_lane":[{},{},{}])", second.visits,
                   second.stages, second.logits);
  }
  if (result.held > Nanos{0}) {
    fmt::format_to(std::back_inserter(line), R"(,"held_ns":{})", result.held.count());
  }
  append_work(line, result.host);
  line += R"(,"tokens":)";
  append_tokens(line, result.samples);
  if (!result.visitors.empty()) {
    line += R"(,"visitors":)";
    append_tokens(line, result.visitors);
  }
  if (!binds.empty()) {
    fmt::format_to(std::back_inserter(line), R"(,"binds":[{}])", binds);
  }
  line += "}";
  return line;
}

std::string tiers_line(int64_t step, const TierEvents& events) {
  std::string line = fmt::format(R"({{"tiers":{})", step);
  append_some(line, "done", events.transfers_done);
  append_some(line, "left", events.left);
  append_some(line, "failed", events.failed);
  append_some(line, "lost", events.lost_blocks);
  append_some(line, "found", events.found_blocks);
  line += "}";
  return line;
}

void append_bind(std::string& entries, const BindView& view, const BindDecision& decision) {
  fmt::format_to(std::back_inserter(entries),
                 R"({}{{"now":{},"stage":{},"rows":{},"row_room":{},"logit_room":{},"ready":)",
                 entries.empty() ? "" : ",", view.now.count(), view.first_stage, view.resident_rows,
                 view.row_room, view.logit_room);
  append_numbers(entries, view.ready);
  entries += R"(,"coming":)";
  append_numbers(entries, view.coming);
  entries += R"(,"credits":)";
  append_numbers(entries, view.credits);
  if (view.mode == StepMode::kLanes) {
    fmt::format_to(std::back_inserter(entries), R"(,"lanes":true{},"held":{})",
                   view.lane == 0 ? "" : R"(,"lane":1)", view.held.count());
  }
  if (!view.launched.empty()) {
    fmt::format_to(std::back_inserter(entries), R"(,"oldest_runs":{},"launched":[)",
                   view.oldest_runs.count());
    for (const LaunchedGroup& group : view.launched) {
      fmt::format_to(std::back_inserter(entries), "{}[{},{}]",
                     &group == view.launched.data() ? "" : ",", group.first_stage, group.end_stage);
    }
    entries += ']';
  }
  entries += decision.wait ? R"(,"wait":true)" : R"(,"visitors":)";
  if (!decision.wait) {
    append_ids(entries, decision.visitors);
  }
  entries += '}';
}

Status read_bind(const nlohmann::json& entry, int64_t step, int32_t last_stage, RecordedBind& out) {
  BindView& view = out.view;
  view = {};
  view.step = step;
  view.last_stage = last_stage;
  view.mode = entry.contains("lanes") ? StepMode::kLanes : StepMode::kGroups;
  const auto nanos = [&](const char* key, Nanos& to) -> Status {
    ASSIGN_OR_RETURN(const int64_t count, record_integer(entry, key, 0, kMaxBindNanos));
    to = Nanos{count};
    return {};
  };
  const auto rows = [&](const char* key, int64_t max, int32_t& to) -> Status {
    ASSIGN_OR_RETURN(const int64_t count, record_integer(entry, key, 0, max));
    to = static_cast<int32_t>(count);
    return {};
  };
  RETURN_IF_ERROR(nanos("now", view.now));
  if (view.mode == StepMode::kLanes) {
    RETURN_IF_ERROR(nanos("held", view.held));
    view.lane = entry.contains("lane") ? 1 : 0;
  }
  RETURN_IF_ERROR(rows("stage", last_stage, view.first_stage));
  RETURN_IF_ERROR(rows("rows", kMaxBindRows, view.resident_rows));
  RETURN_IF_ERROR(rows("row_room", kMaxBindRows, view.row_room));
  RETURN_IF_ERROR(rows("logit_room", kMaxBindRows, view.logit_room));
  const size_t one_if_lanes = view.mode == StepMode::kLanes ? 1 : 0;
  RETURN_IF_ERROR(read_counts(entry, "ready", one_if_lanes, kMaxBindRows, out.ready));
  if (view.first_stage + std::ssize(out.ready) > int64_t{last_stage} + 1) {
    return invalid_argument("a bind has more stages than the model");
  }
  RETURN_IF_ERROR(read_counts(entry, "coming", out.ready.size(), kMaxBindRows, out.coming));
  // The last stage begins no hop, so its credits have no bound.
  RETURN_IF_ERROR(read_counts(entry, "credits", out.ready.size(), INT32_MAX, out.credits));
  RETURN_IF_ERROR(read_launched(entry, out));
  if (!out.launched.empty()) {
    RETURN_IF_ERROR(nanos("oldest_runs", view.oldest_runs));
  }
  view.ready = out.ready;
  view.coming = out.coming;
  view.credits = out.credits;
  view.launched = out.launched;
  return {};
}

Status read_counted(const nlohmann::json& result, RecordedCounts& out) {
  out = {};
  if (result.contains("visits")) {
    ASSIGN_OR_RETURN(out.visits, record_integer(result, "visits", 0, kMaxCount));
  }
  if (result.contains("held_ns")) {
    ASSIGN_OR_RETURN(const int64_t held, record_integer(result, "held_ns", 0, kMaxBindNanos));
    out.held = Nanos{held};
  }
  std::array<int64_t, 3> numbers{};
  if (result.contains("second_lane")) {
    RETURN_IF_ERROR(read_triple(result, "second_lane", INT32_MAX, numbers));
    out.second = {.visits = numbers[0],
                  .stages = static_cast<int32_t>(numbers[1]),
                  .logits = static_cast<int32_t>(numbers[2])};
  }
  if (result.contains("host")) {
    RETURN_IF_ERROR(read_triple(result, "host", kMaxWork, numbers));
    out.host = {.busy = Nanos{numbers[0]}, .rows = numbers[1], .context = numbers[2]};
  }
  return {};
}

Result<RecordedStages> read_stages(const nlohmann::json& plan, int32_t last_stage) {
  RecordedStages stages;
  if (!plan.contains("stages")) {
    return stages;
  }
  for (const nlohmann::json& entry : plan.at("stages")) {
    const int64_t sequence = json_integer(entry.at(0)).value_or(-1);
    const int64_t stage = json_integer(entry.at(1)).value_or(-1);
    if (sequence < 0 || stage < 0 || stage > last_stage) {
      return invalid_argument("'stages' of a plan has a number out of range");
    }
    stages.insert_or_assign(SequenceId{sequence}, static_cast<int32_t>(stage));
  }
  return stages;
}

}  // namespace tandem
