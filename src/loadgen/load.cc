#include "loadgen/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "workload/number.h"
#include "workload/random.h"

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
    return invalid_argument(fmt::format("goodput: '{}' is not a number of milliseconds", text),
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

// The tasks of one stream in their order.
class TaskOrder {
 public:
  TaskOrder(const AnswerTasks& tasks, uint64_t seed) {
    workload::Random random(seed);
    for (const AnswerTask& task : *tasks) {
      order_.push_back(&task);
      std::swap(order_.back(), order_[random.below(order_.size())]);
    }
  }
  const AnswerTask* next() { return order_[next_++ % order_.size()]; }

 private:
  std::vector<const AnswerTask*> order_;
  size_t next_ = 0;
};

// Of a request that asks a task the length of the prompt is not known.
void ask(LoadRequest& request, const AnswerTask* task) {
  request.task = task;
  request.plan.prompt.clear();
  request.plan.input_tokens = 0;
  request.plan.output_tokens = kMostTaskAnswerTokens;
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
          fmt::format("goodput: '{}' is not a target; write ttft:MS, tpot:MS or e2el:MS", target),
          "goodput");
    }
  }
  return goodput;
}

Result<Load> make_load(const std::vector<LoadStream>& streams, uint64_t seed) {
  std::vector<workload::StreamOptions> options;
  Load load;
  std::vector<int32_t> first_group;  // of each stream
  std::vector<std::optional<TaskOrder>> orders;
  for (const LoadStream& stream : streams) {
    orders.emplace_back();
    if (stream.tasks != nullptr) {
      orders.back().emplace(stream.tasks, workload::mixed(seed, orders.size()));
      load.tasks.push_back(stream.tasks);
    }
    options.push_back(stream.options);
    load.skipped_rows += stream.options.trace == nullptr ? 0 : stream.options.trace->skipped_rows;
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
    if (orders[stream]) {
      ask(load.requests.back(), orders[stream]->next());
    }
  }
  return load;
}

}  // namespace tandem::loadgen
