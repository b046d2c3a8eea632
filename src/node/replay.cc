#include "node/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "base/bell.h"
#include "base/json_values.h"
#include "engine/engine.h"
#include "exec/code_digest.h"
#include "node/loaded_model.h"
#include "node/option_table.h"
#include "node/record_lines.h"
#include "node/record_reader.h"
#include "node/replay_comparer.h"
#include "node/replay_executor.h"
#include "node/request_json.h"
#include "node/run_kernels.h"
#include "node/scheduled_model.h"
#include "options/option_json.h"
#include "scheduler/policies/registry.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr int64_t kLastNanos = int64_t{1} << 62;     // differences of times do not overflow
constexpr int64_t kLargestCount = int64_t{1} << 32;  // of one step: sums do not overflow

// The options that the recorded server read. Earlier builds let options that the policy does not
// read have any value.
OptionTable recorded_options(const json& config, NodeOptions& options) {
  OptionTable table = node_option_table(options);
  const json* policy = json_member(config, "policy");
  if (policy == nullptr || !policy->is_string()) {
    return table;
  }
  for (const PolicyOption* option : policy_options()) {
    if (!reads_option(policy->get<std::string>(), *option)) {
      std::erase_if(table,
                    [&](const OptionDescriptor& shown) { return shown.name == option->name; });
    }
  }
  return table;
}

Result<NodeOptions> options_from(const json& config, const NodeOptions& overrides) {
  NodeOptions options = overrides;
  // Records of earlier builds come from servers that admitted everything, and lack what policies
  // have learned to read since.
  options.admission = AdmissionMode::kOff;
  options.prompts_to_host = PromptsToHost::kOffload;
  for (const PolicyOption* option : policy_options()) {
    if (option->in_earlier_records.has_value()) {
      options.policy_options[*option] = *option->in_earlier_records;
    }
  }
  RETURN_IF_ERROR(read_recorded_options(config, recorded_options(config, options)));
  if (config.contains("time_profile")) {
    options.profile.text = config.at("time_profile").dump();
  }
  if (config.contains("host_kv_blocks")) {  // two tiers
    options.accelerator.emplace();
    if (options.host_memory_bytes < 1) {
      return invalid_argument(
          "the record's configuration is broken: two tiers without host_memory_bytes");
    }
  }
  // Records of earlier builds come from servers that knew the end tokens of the model's folder
  // alone.
  if (config.contains("end_tokens")) {
    try {
      options.end_tokens = config.at("end_tokens").get<std::vector<TokenId>>();
    } catch (const json::exception& error) {
      return invalid_argument(
          fmt::format("the record's configuration is broken: end_tokens: {}", error.what()));
    }
  }
  return options;
}

class Replayer {
 public:
  // `step_ended` is rung when a step has completed.
  Replayer(const NodeOptions& options, const PlannedModel& model, LoadedModel& loaded,
           const ScheduledModel& scheduled, int digest_version, Bell& step_ended,
           const Clock& machine_clock)
      : block_tokens_(model.plan.block_tokens),
        max_model_len_(model.plan.max_model_len),
        vocabulary_(model.folder.config.vocabulary),
        max_choices_(options.max_num_seqs),
        step_ended_(step_ended),
        host_tier_(model.plan.host.kv_blocks > 0),
        tiers_(*loaded.executor, limits_of(*loaded.executor, options, digest_version),
               machine_clock),
        comparer_(host_tier_ ? scheduled.policy.make_binder() : nullptr, model.folder.config.layers,
                  digest_version),
        engine_(
            engine_config(options, model, scheduled.profile.get()),
            {.executor = host_tier_ ? static_cast<StepExecutor&>(tiers_) : *loaded.executor,
             .policy = *scheduled.policy.step,
             .clock = clock_,
             .recorder = comparer_,
             .step_times = scheduled.step_times.get(),
             .host_times = scheduled.host_times.get(),
             // It is asked nothing: its presence changes what policies see.
             .admission = options.admission == AdmissionMode::kOn ? scheduled.policy.admission.get()
                                                                  : nullptr}) {}

  // A step that ended before the engine had nothing more to do, and what came in some time after,
  // stand in the record as if they were one. Cancels and stops before the first arrival are the
  // step's: later there is no sequence that they could end.
  Status run(Group group) {
    if (host_tier_ || !group.plans() || !group.expected.front().contains("result")) {
      return advance(std::move(group));
    }
    ASSIGN_OR_RETURN(const Nanos end, end_of_step(group.expected.front()));
    ASSIGN_OR_RETURN(const int64_t planned,
                     record_integer(group.expected.at(1), "now", 0, kLastNanos));
    if (Nanos{planned} != end) {
      Group before;
      before.expected.push_back(std::move(group.expected.front()));
      group.expected.erase(group.expected.begin());
      const auto arrival = std::ranges::find_if(
          group.inputs, [](const json& line) { return line.contains("arrival"); });
      if (arrival != group.inputs.end()) {
        before.inputs.assign(std::move_iterator(group.inputs.begin()), std::move_iterator(arrival));
        group.inputs.erase(group.inputs.begin(), arrival);
      }
      RETURN_IF_ERROR(advance(std::move(before)));
      if (!report_.first_difference.empty()) {
        return {};
      }
    }
    return advance(std::move(group));
  }

  [[nodiscard]] const ReplayReport& report() const { return report_; }

 private:
  // Servers whose records have digests of version 1 had no rows of logits for visitors alone.
  static ExecutorLimits limits_of(const StepExecutor& executor, const NodeOptions& options,
                                  int digest_version) {
    ExecutorLimits limits = executor.limits();
    if (digest_version == 1) {
      limits.max_logit_rows = std::min(limits.max_logit_rows, options.max_num_seqs);
    }
    return limits;
  }

  Status advance(Group group) {
    RETURN_IF_ERROR(check_order(group));
    for (const json& line : group.inputs) {
      RETURN_IF_ERROR(post(line));
    }
    RETURN_IF_ERROR(expect_stages(group));
    int64_t ready = -1;  // since the last planning; those that follow in the group see none
    if (!group.later_ready.is_null()) {
      const json later = {{"ready", std::move(group.later_ready)}};
      ASSIGN_OR_RETURN(ready, record_integer(later, "ready", 0, kLargestCount));
    }
    for (const json& line : group.expected) {
      RETURN_IF_ERROR(line.contains("result") ? expect_result(line) : expect_plan(line, ready));
    }
    tiers_.expect_ready(ready);
    activity_ = engine_.advance(clock_.now(), inputs_).activity;
    if (activity_ == EngineActivity::kFailed) {
      return *engine_.failure();
    }
    report_.first_difference = comparer_.difference(group.expected);
    if (!tiers_.problem().empty()) {
      report_.first_difference = tiers_.problem();
    }
    return {};
  }

  // Of the first planning; no token moves on until a step is launched.
  Status expect_stages(const Group& group) {
    const auto plan = std::ranges::find_if(group.expected,
                                           [](const json& line) { return line.contains("plan"); });
    RecordedStages stages;
    if (plan != group.expected.end()) {
      ASSIGN_OR_RETURN(stages, read_stages(*plan, tiers_.limits().hops_per_token));
    }
    tiers_.expect_stages(std::move(stages));
    return {};
  }

  // While a step runs the engine is called for its end alone, and else there is none to wait for.
  [[nodiscard]] Status check_order(const Group& group) const {
    const auto results = std::ranges::count_if(
        group.expected, [](const json& line) { return line.contains("result"); });
    if (results ==
        ((activity_ == EngineActivity::kStepRunning || activity_ == EngineActivity::kVisitorsOnly)
             ? 1
             : 0)) {
      return {};
    }
    return invalid_argument(fmt::format(
        "the record's lines are not in the order of a run: after {} steps {}; lines were changed "
        "or moved",
        report_.steps,
        results == 0 ? "one runs, but its result does not follow"
                     : "a result stands where none runs"));
  }

  // What admission said of it, where it was asked.
  static Status read_forecast(const json& line, Arrival& arrival) {
    if (line.contains("forecast_ns")) {
      ASSIGN_OR_RETURN(const int64_t forecast, record_integer(line, "forecast_ns", 0, kLastNanos));
      arrival.forecast_ttft = Nanos{forecast};
    }
    if (line.contains("believed_cached")) {
      ASSIGN_OR_RETURN(
          const int64_t cached,
          record_integer(line, "believed_cached", 0, std::ssize(arrival.request.prompt) - 1));
      arrival.believed_cached = static_cast<int32_t>(cached);
    }
    return {};
  }

  // What steps took is what was learnt from them, so the clock goes as it went then.
  [[nodiscard]] Result<Nanos> end_of_step(const json& line) const {
    ASSIGN_OR_RETURN(const int64_t took, record_integer(line, "ns", 0, kLastNanos));
    return std::min(launched_, Nanos{kLastNanos - took}) + Nanos{took};
  }

  Status expect_result(const json& line) {
    ASSIGN_OR_RETURN(const Nanos end, end_of_step(line));
    clock_.set(std::max(clock_.now(), end));
    if (host_tier_) {
      RETURN_IF_ERROR(expect_visitors(line));
      RETURN_IF_ERROR(comparer_.expect_binds(line));
    } else {
      step_ended_.wait();
    }
    ++report_.steps;
    report_.tokens += static_cast<int64_t>(line.at("tokens").size());
    return {};
  }

  Status expect_plan(const json& line, int64_t& ready) {
    ASSIGN_OR_RETURN(const int64_t now, record_integer(line, "now", 0, kLastNanos));
    clock_.set(std::max(clock_.now(), Nanos{now}));
    launched_ = clock_.now();
    if (ready < 0 && line.contains("ready")) {
      ASSIGN_OR_RETURN(ready, record_integer(line, "ready", 0, kLargestCount));
    }
    return {};
  }

  Status expect_visitors(const json& result) {
    RecordedCounts counts;
    RETURN_IF_ERROR(read_counted(result, counts));
    tiers_.expect_counts(counts);
    std::vector<SequenceId> visitors;
    if (result.contains("visitors")) {
      for (const json& visitor : result.at("visitors")) {
        visitors.push_back(SequenceId{visitor.at(0).get<int64_t>()});
      }
    }
    tiers_.expect_visitors(std::move(visitors));
    return {};
  }

  template <class Id>
  static void read_ids(const json& line, const char* key, std::vector<Id>& ids) {
    if (line.contains(key)) {
      for (const json& id : line.at(key)) {
        ids.push_back(static_cast<Id>(id.get<int64_t>()));
      }
    }
  }

  Status expect_events(const json& line) {
    if (!host_tier_) {
      return invalid_argument("the record speaks of two tiers, but its configuration of one");
    }
    TierEvents events;
    read_ids(line, "done", events.transfers_done);
    read_ids(line, "left", events.left);
    read_ids(line, "failed", events.failed);
    read_ids(line, "lost", events.lost_blocks);
    read_ids(line, "found", events.found_blocks);
    tiers_.expect_events(std::move(events));
    return {};
  }

  Status post(const json& line) {
    if (line.contains("tiers")) {
      return expect_events(line);
    }
    ASSIGN_OR_RETURN(const int64_t number, record_integer(line, "id", 0, INT64_MAX));
    const RequestId id{number};
    if (line.contains("arrival")) {
      ASSIGN_OR_RETURN(Request request, request_from_json(line));
      RETURN_IF_ERROR(check(request));
      if (!seen_.insert(raw(id)).second) {
        return invalid_argument(fmt::format("the record has the request {} twice", raw(id)));
      }
      ++report_.requests;
      ASSIGN_OR_RETURN(const int64_t at, record_integer(line, "at", 0, kLastNanos));
      Arrival arrival = Engine::make_arrival(id, std::move(request), Nanos{at}, block_tokens_);
      RETURN_IF_ERROR(read_forecast(line, arrival));
      inputs_.emplace_back(std::move(arrival));
    } else if (line.contains("cancel")) {
      inputs_.emplace_back(EngineCancel{id});
    } else if (line.contains("stop")) {
      ASSIGN_OR_RETURN(const int64_t choice, record_integer(line, "choice", 0, INT32_MAX));
      inputs_.emplace_back(EngineStop{id, static_cast<int32_t>(choice)});
    } else {
      return invalid_argument(
          fmt::format("a line of the record is of no known kind: {}", line.dump()));
    }
    return {};
  }

  // What the server checks before the engine sees a request, a file may have wrong.
  [[nodiscard]] Status check(const Request& request) const {
    const auto known = [&](TokenId token) { return token >= 0 && token < vocabulary_; };
    const SamplingParams& sampling = request.sampling;
    if (std::ssize(request.prompt) + sampling.max_tokens > max_model_len_ ||
        request.n > max_choices_ || !std::ranges::all_of(request.prompt, known) ||
        !std::ranges::all_of(sampling.stop_token_ids, known) ||
        !std::ranges::all_of(sampling.logit_bias,
                             [&](const LogitBias& bias) { return known(bias.token); })) {
      return invalid_argument(
          "an arrival of the record does not fit the model: its tokens, their number or n are "
          "beyond it; give the model that the record was made with");
    }
    return {};
  }

  int32_t block_tokens_;
  int32_t max_model_len_;
  int32_t vocabulary_;
  int32_t max_choices_;
  Bell& step_ended_;
  const bool host_tier_;
  ReplayExecutor tiers_;  // where there is a host tier
  ManualClock clock_;
  Nanos launched_{0};  // the step in flight
  ReplayComparer comparer_;
  Engine engine_;
  EngineInputs inputs_;
  EngineActivity activity_ = EngineActivity::kIdle;  // as of the last call of advance
  ReplayReport report_;
  std::unordered_set<int64_t> seen_;  // ids of requests
};

}  // namespace

Result<ReplayReport> replay(const std::filesystem::path& record, const NodeOptions& overrides,
                            const Clock& clock,
                            const std::function<void(int64_t steps)>& on_progress) {
  RecordReader reader(record);
  if (!reader.opened()) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("cannot read the record file '{}'", record.string()), ""};
  }
  const std::optional<json> head = reader.next();
  if (!head.has_value() || !head->contains("tandem_record") || !head->contains("config")) {
    return invalid_argument(fmt::format("'{}' is not a record of --record-out", record.string()));
  }
  Bell step_ended;
  try {
    // Records of earlier builds have digests of version 1.
    int64_t digest_version = 1;
    if (head->contains("view_digest")) {
      ASSIGN_OR_RETURN(digest_version, record_integer(*head, "view_digest", 1, kViewDigestVersion));
    }
    ASSIGN_OR_RETURN(NodeOptions options, options_from(head->at("config"), overrides));
    // Records of earlier builds name one family.
    const std::string other_kernels =
        use_recorded_kernels(head->at("config").value("isa", std::string()), options.device.isa);
    ASSIGN_OR_RETURN(const SoleModel opened, open_model(options, clock));
    const PlannedModel& model = opened.model;
    if (needs_measuring(options, model)) {
      return invalid_argument("the record's policy needs step times, but it brings none");
    }
    ScheduledModel scheduled;  // before the executor, whose binder refers to its policy
    ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> loaded,
                     load_model(model, {}, [&step_ended] { step_ended.ring(); }));
    ASSIGN_OR_RETURN(scheduled, complete_model(options, model, *loaded, step_ended, clock, {}));
    Replayer replayer(options, model, *loaded, scheduled, static_cast<int>(digest_version),
                      step_ended, clock);
    GroupReader groups(reader);
    while (std::optional<Group> group = groups.next()) {
      // A record that was cut may lack the end of its last group.
      if (groups.at_end() && reader.cut()) {
        break;
      }
      RETURN_IF_ERROR(replayer.run(std::move(*group)));
      if (on_progress) {
        on_progress(replayer.report().steps);
      }
      if (!replayer.report().first_difference.empty()) {
        break;
      }
    }
    if (reader.goes_on()) {
      return invalid_argument(
          "the record's lines are not in the order of a run: some follow the line that closes it; "
          "lines were changed or moved");
    }
    ReplayReport report = replayer.report();
    report.other_kernels = other_kernels;
    report.other_build = head->value("build", std::string()) != kCodeDigest;
    report.complete = !reader.cut();
    return report;
  } catch (const json::exception& error) {
    return invalid_argument(fmt::format("the record is broken: {}", error.what()));
  }
}

}  // namespace tandem
