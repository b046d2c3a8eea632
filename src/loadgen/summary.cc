#include "loadgen/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tandem::loadgen {

namespace {

struct Samples {
  std::vector<double> ttft, tpot, itl, e2el, engine_ttft;
};

bool keeps(const Goodput& goodput, const RequestRecord& record) {
  // As vLLM counts: an answer of one token has a TPOT of 0.
  return (!goodput.ttft || record.ttft() <= goodput.ttft->target(record.input_tokens())) &&
         (!goodput.tpot || record.tpot().value_or(Nanos{0}) <= *goodput.tpot) &&
         (!goodput.e2el || record.e2el() <= *goodput.e2el);
}

// Whether a request that the end of the run cut off had missed a target by then, whatever would
// have come: its planned tokens divide the time that it had.
bool had_missed(const Goodput& goodput, const RequestRecord& record) {
  const Nanos end = record.ended_at;
  const bool began = !record.chunk_times.empty();
  const Nanos first = began ? record.chunk_times.front() : end;
  const Nanos decoding = end - first;
  return (goodput.ttft && first - record.sent_at > goodput.ttft->target(record.input_tokens())) ||
         (goodput.tpot && record.planned_output_tokens > 1 &&
          decoding > *goodput.tpot * (record.planned_output_tokens - 1)) ||
         (goodput.e2el && end - record.sent_at > *goodput.e2el);
}

void add_what_the_server_said(const RequestRecord& record, const RequestGroup& group,
                              GroupSummary& summary, Samples& samples) {
  const bool asked = group.service_tier == "priority" || group.service_tier == "flex";
  const bool other = !record.service_tier.empty() && record.service_tier != group.service_tier;
  summary.other_tiers += asked && other ? 1 : 0;
  if (!record.usage) {
    return;
  }
  if (record.usage->slo_met) {
    ++summary.judged;
    summary.judged_good += *record.usage->slo_met ? 1 : 0;
  }
  if (record.usage->engine_ttft_ms) {
    samples.engine_ttft.push_back(*record.usage->engine_ttft_ms);
  }
}

void add(const RequestRecord& record, const RequestGroup& group, GroupSummary& summary,
         Samples& samples) {
  ++summary.planned;
  const bool sent = record.outcome != Outcome::kNotSent;
  // A request that the end of the run cut off before a target had passed has neither kept nor
  // missed it.
  const bool decided = record.outcome != Outcome::kInterrupted || had_missed(group.goodput, record);
  const bool aimed = sent && group.goodput.any() && decided;
  summary.sent += sent ? 1 : 0;
  summary.aimed += aimed ? 1 : 0;
  summary.interrupted += record.outcome == Outcome::kInterrupted ? 1 : 0;
  if (record.outcome == Outcome::kFailed) {
    ++summary.failed;
    ++summary.reasons[record.reason];
    summary.examples.emplace(record.reason, record.message);
  }
  if (record.outcome != Outcome::kDone) {
    return;
  }
  ++summary.done;
  summary.input_tokens += record.input_tokens();
  summary.output_tokens += record.output_tokens();
  summary.cached_tokens += record.usage ? record.usage->cached_tokens : 0;
  if (record.task == nullptr) {
    summary.short_outputs += record.output_tokens() < record.planned_output_tokens ? 1 : 0;
    summary.other_inputs += record.input_tokens() != record.planned_input_tokens ? 1 : 0;
  }
  const bool good = keeps(group.goodput, record);
  summary.good += good ? 1 : 0;
  summary.aimed_good += aimed && good ? 1 : 0;
  add_what_the_server_said(record, group, summary, samples);
  samples.ttft.push_back(to_millis(record.ttft()));
  samples.e2el.push_back(to_millis(record.e2el()));
  if (const std::optional<Nanos> tpot = record.tpot()) {
    samples.tpot.push_back(to_millis(*tpot));
  }
  for (size_t i = 1; i < record.chunk_times.size(); ++i) {
    samples.itl.push_back(to_millis(record.chunk_times[i] - record.chunk_times[i - 1]));
  }
}

void finish(Samples samples, GroupSummary& summary) {
  summary.ttft = distribution_of(std::move(samples.ttft));
  summary.tpot = distribution_of(std::move(samples.tpot));
  summary.itl = distribution_of(std::move(samples.itl));
  summary.e2el = distribution_of(std::move(samples.e2el));
  summary.engine_ttft = distribution_of(std::move(samples.engine_ttft));
}

// 1, 2 or 5 times a power of ten, so that about 120 slices cover the run.
double slice_length(double duration_s) {
  constexpr double kSlices = 120;
  const double wanted = std::max(duration_s / kSlices, 0.01);
  const double power = std::pow(10, std::floor(std::log10(wanted)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (wanted <= step * power) {
      return step * power;
    }
  }
  return 10 * power;
}

class TimelineMaker {
 public:
  explicit TimelineMaker(Summary& summary) : summary_(summary) {
    summary.slice_s = slice_length(summary.duration_s);
    const auto slices =
        static_cast<size_t>(std::ceil(std::max(summary.duration_s, 1e-3) / summary.slice_s));
    summary.timeline.resize(slices);
    for (size_t i = 0; i < slices; ++i) {
      summary.timeline[i].begin_s = static_cast<double>(i) * summary.slice_s;
    }
  }

  void add(const RequestRecord& record) {
    if (to_seconds(record.planned_at) <= summary_.duration_s) {
      ++at(record.planned_at).planned;  // a run that was ended early never came to the others
    }
    if (record.outcome == Outcome::kNotSent) {
      return;
    }
    ++at(record.sent_at).sent;
    at(record.ended_at).done += record.outcome == Outcome::kDone ? 1 : 0;
    at(record.ended_at).failed += record.outcome == Outcome::kFailed ? 1 : 0;
    for (const Nanos chunk : record.chunk_times) {
      ++at(chunk).chunks;
    }
    occupy(to_seconds(record.sent_at), to_seconds(record.ended_at));
  }

 private:
  TimelineSlice& at(Nanos time) {
    const auto slice = static_cast<size_t>(std::max(to_seconds(time), 0.0) / summary_.slice_s);
    return summary_.timeline[std::min(slice, summary_.timeline.size() - 1)];
  }

  void occupy(double from_s, double to_s) {
    for (auto i = static_cast<size_t>(from_s / summary_.slice_s); i < summary_.timeline.size();
         ++i) {
      TimelineSlice& slice = summary_.timeline[i];
      const double overlap =
          std::min(to_s, slice.begin_s + summary_.slice_s) - std::max(from_s, slice.begin_s);
      if (overlap <= 0) {
        return;
      }
      slice.under_way += overlap / summary_.slice_s;
    }
  }

  Summary& summary_;
};

void find_peaks(const std::vector<RequestRecord>& records, Summary& summary) {
  std::vector<std::pair<Nanos, int>> changes;
  std::vector<int64_t> per_second(static_cast<size_t>(summary.duration_s) + 1);
  for (const RequestRecord& record : records) {
    if (record.outcome == Outcome::kNotSent) {
      continue;
    }
    changes.emplace_back(record.sent_at, 1);
    changes.emplace_back(record.ended_at, -1);
    for (const Nanos chunk : record.chunk_times) {
      const auto second = static_cast<size_t>(to_seconds(chunk));
      ++per_second[std::min(second, per_second.size() - 1)];
    }
  }
  std::ranges::sort(changes);
  int64_t under_way = 0;
  for (const auto& [time, change] : changes) {
    under_way += change;
    summary.most_under_way = std::max(summary.most_under_way, under_way);
  }
  summary.most_tokens_per_s = static_cast<double>(std::ranges::max(per_second));
}

void warn(const std::vector<RequestRecord>& records, Summary& summary) {
  // A load that is planned for one moment leaves one request after the other; that is no lateness.
  const bool is_spread = !records.empty() && records.back().planned_at > records.front().planned_at;
  const double late = is_spread ? summary.lateness.at(99) : 0;
  if (late > kLatenessLimit_ms || summary.cpu_share > kCpuShareLimit) {
    summary.warnings.push_back(fmt::format(
        "The load generator was a bottleneck: requests left up to {:.0f} ms late (P99), its thread "
        "was busy {:.0f} % of the time. Read the latencies as upper bounds; give it a core of its "
        "own, another machine or a lower rate.",
        late, summary.cpu_share * 100));
  }
  if (summary.all.other_inputs > 0) {
    summary.warnings.push_back(
        fmt::format("{} of {} prompts had another length than planned by the server's own count.",
                    summary.all.other_inputs, summary.all.done));
  }
  if (summary.all.short_outputs > 0) {
    summary.warnings.push_back(
        fmt::format("{} of {} answers were shorter than planned: the server stopped them earlier.",
                    summary.all.short_outputs, summary.all.done));
  }
  if (summary.all.other_tiers > 0) {
    summary.warnings.push_back(
        fmt::format("{} of {} requests were served as another service tier than they asked for.",
                    summary.all.other_tiers, summary.all.done));
  }
  if (summary.interrupted) {
    summary.warnings.push_back(fmt::format(
        "The run was ended early: {} of {} requests were sent, {} were cut off under way.",
        summary.all.sent, summary.all.planned, summary.all.interrupted));
  }
  for (const auto& [reason, count] : summary.all.reasons) {
    summary.warnings.push_back(fmt::format("{} of {} requests failed with {}: {}", count,
                                           summary.all.sent, reason,
                                           summary.all.examples.at(reason)));
  }
  if (summary.all.done == 0) {
    summary.warnings.emplace_back("No request was answered.");
  }
}

void count(Accuracy& accuracy, bool right) {
  ++accuracy.judged;
  accuracy.right += right ? 1 : 0;
}

void judge(const std::vector<RequestRecord>& records, Summary& summary) {
  std::map<std::string, AbilitySummary> abilities;
  for (const RequestRecord& record : records) {
    if (record.task == nullptr || record.outcome != Outcome::kDone) {
      continue;
    }
    const bool right = is_right(*record.task, record.answer);
    const auto group = static_cast<size_t>(record.group);
    count(summary.all.answers, right);
    count(summary.groups[group].answers, right);
    count(summary.models[static_cast<size_t>(record.model)].answers, right);
    AbilitySummary& ability = abilities[record.task->ability];
    ability.groups.resize(summary.groups.size());
    count(ability.all, right);
    count(ability.groups[group], right);
    if (!right && ability.wrong_id.empty()) {
      ability.wrong_id = record.task->id;
      ability.wrong_answer = record.answer;
    }
  }
  for (auto& [name, ability] : abilities) {
    ability.name = name;
    summary.abilities.push_back(std::move(ability));
  }
}

}  // namespace

Summary summarize(const Load& load, const RunResult& run) {
  Summary summary;
  summary.duration_s = to_seconds(run.duration);
  summary.interrupted = run.interrupted;
  summary.connections = run.connections;
  summary.cpu_share = run.duration > Nanos{0} ? to_seconds(run.cpu_time) / summary.duration_s : 0;
  summary.all.name = "all";
  for (const RequestGroup& group : load.groups) {
    summary.groups.push_back({.name = group.name, .goodput = group.goodput});
  }
  summary.models_are_engines = load.models_are_engines;
  for (const std::string& model : load.models) {
    summary.models.push_back({.name = model});
  }
  Samples all;
  std::vector<Samples> of_groups(summary.groups.size());
  std::vector<Samples> of_models(summary.models.size());
  std::vector<double> lateness;
  std::vector<double> waits;
  TimelineMaker timeline(summary);
  for (const RequestRecord& record : run.records) {
    const auto group = static_cast<size_t>(record.group);
    const auto model = static_cast<size_t>(record.model);
    const RequestGroup& kind = load.groups[group];
    add(record, kind, summary.all, all);
    add(record, kind, summary.groups[group], of_groups[group]);
    add(record, kind, summary.models[model], of_models[model]);
    timeline.add(record);
    if (record.outcome != Outcome::kNotSent) {
      lateness.push_back(to_millis(record.lateness()));
      waits.push_back(to_millis(record.client_wait()));
    }
  }
  finish(std::move(all), summary.all);
  for (size_t i = 0; i < summary.groups.size(); ++i) {
    finish(std::move(of_groups[i]), summary.groups[i]);
    summary.all.goodput =
        summary.groups[i].goodput.any() ? summary.groups[i].goodput : summary.all.goodput;
  }
  for (size_t i = 0; i < summary.models.size(); ++i) {
    finish(std::move(of_models[i]), summary.models[i]);
  }
  summary.lateness = distribution_of(std::move(lateness));
  summary.client_wait = distribution_of(std::move(waits));
  judge(run.records, summary);
  find_peaks(run.records, summary);
  warn(run.records, summary);
  if (load.skipped_rows > 0) {
    summary.warnings.push_back(fmt::format(
        "{} rows of the trace have no prompt or no answer and were left out.", load.skipped_rows));
  }
  return summary;
}

}  // namespace tandem::loadgen
