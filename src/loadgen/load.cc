#include "loadgen/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "workload/number.h"

namespace tandem::loadgen {

namespace {

Result<TtftRule> parse_ttft(std::string_view text) {
  if (const std::optional<double> millis = workload::read_number(text);
      millis && *millis > 0 && *millis < 1e9) {
    return TtftRule{.base = Nanos(std::llround(*millis * 1e6))};
  }
  return parse_ttft_rule(text);
}

Result<Nanos> parse_millis(std::string_view text) {
  const std::optional<double> millis = workload::read_number(text);
  if (!millis || !(*millis > 0 && *millis < 1e9)) {
    return invalid_argument(fmt::format("goodput: '{}' is no number of milliseconds", text),
                            "goodput");
  }
  return Nanos(std::llround(*millis * 1e6));
}

int32_t index_of(std::vector<std::string>& names, const std::string& name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) {
    names.push_back(name);
    return static_cast<int32_t>(names.size()) - 1;
  }
  return static_cast<int32_t>(found - names.begin());
}

}  // namespace

Result<Goodput> parse_goodput(const std::vector<std::string>& targets) {
  Goodput goodput;
  for (const std::string& target : targets) {
    const size_t colon = target.find(':');
    const std::string name = target.substr(0, colon);
    const std::string value = colon == std::string::npos ? "" : target.substr(colon + 1);
    if (name == "ttft") {
      ASSIGN_OR_RETURN(goodput.ttft, parse_ttft(value));
    } else if (name == "tpot") {
      ASSIGN_OR_RETURN(goodput.tpot, parse_millis(value));
    } else if (name == "e2el") {
      ASSIGN_OR_RETURN(goodput.e2el, parse_millis(value));
    } else {
      return invalid_argument(
          fmt::format("goodput: '{}' is no target; write ttft:MS, tpot:MS or e2el:MS", target),
          "goodput");
    }
  }
  return goodput;
}

Result<Load> make_load(const std::vector<LoadStream>& streams, uint64_t seed) {
  std::vector<workload::StreamOptions> options;
  Load load;
  std::vector<int32_t> first_group;  // of each stream
  for (const LoadStream& stream : streams) {
    options.push_back(stream.options);
    options.back().models = static_cast<int32_t>(stream.models.size());
    first_group.push_back(static_cast<int32_t>(load.groups.size()));
    for (RequestGroup group : stream.groups) {
      const std::string name = group.name;
      const auto is_taken = [&](const RequestGroup& other) { return other.name == group.name; };
      for (int number = 2; std::ranges::any_of(load.groups, is_taken); ++number) {
        group.name = fmt::format("{} {}", name, number);
      }
      load.groups.push_back(std::move(group));
    }
  }
  ASSIGN_OR_RETURN(workload::Schedule schedule, workload::make_schedule(options, seed));
  load.cut_inputs = schedule.cut_inputs;
  load.cut_outputs = schedule.cut_outputs;
  for (workload::PlannedRequest& plan : schedule.requests) {
    const auto stream = static_cast<size_t>(plan.stream);
    const int32_t group = first_group[stream] + plan.share;
    const int32_t model =
        index_of(load.models, streams[stream].models[static_cast<size_t>(plan.model)]);
    load.requests.push_back({group, model, std::move(plan)});
  }
  return load;
}

}  // namespace tandem::loadgen
