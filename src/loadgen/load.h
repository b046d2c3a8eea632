// A run, ready to be sent: groups of requests that are reported apart (classes), the models asked,
// and every request with its time, lengths and text plan. Plain data and how it is made from
// streams. Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "loadgen/task_file.h"
#include "request/slo.h"
#include "workload/schedule.h"

namespace tandem::loadgen {

// What a request must keep to count as good; absent targets are kept by all.
struct Goodput {
  std::optional<TtftRule> ttft;
  std::optional<Nanos> tpot;
  std::optional<Nanos> e2el;
  [[nodiscard]] bool any() const { return ttft || tpot || e2el; }
};

// "ttft:500", "tpot:50", "e2el:5000" in milliseconds; ttft also as a rule: "ttft:500ms+2ms/tok".
Result<Goodput> parse_goodput(const std::vector<std::string>& targets);

// Requests of one kind: what they say of their class, and what is expected of them.
struct RequestGroup {
  std::string name;
  std::string service_tier;         // of the body; empty: not sent
  std::optional<int32_t> priority;  // of the body
  Slo slo;                          // of the body
  bool explain = false;             // asks a Tandem server how it served each request
  std::string headers;              // whole lines, CRLF at their ends
  Slo header_slo;                   // the targets in `headers`; `slo` wins over them
  Goodput goodput;
  std::string engine;  // of a simulation of several: takes the requests; empty: is chosen for each

  [[nodiscard]] Slo sent_slo() const {
    return {.ttft = slo.ttft ? slo.ttft : header_slo.ttft,
            .tpot = slo.tpot ? slo.tpot : header_slo.tpot};
  }
};

using AnswerTasks = std::shared_ptr<const std::vector<AnswerTask>>;

struct LoadStream {
  workload::StreamOptions options;
  // Not null: each request asks the next of these, in an order drawn from the seed, and again from
  // the first when all were asked; of the options, arrivals, models and shares count.
  AnswerTasks tasks;
  std::vector<RequestGroup> groups;  // one for each share, or one
  std::vector<std::string> models;   // at least one
};

struct LoadRequest {
  int32_t group = 0;
  int32_t model = 0;
  workload::PlannedRequest plan;
  const AnswerTask* task = nullptr;  // asked instead of a prompt of a planned length
};

struct Load {
  std::vector<RequestGroup> groups;  // names differ
  std::vector<std::string> models;
  bool models_are_engines = false;    // the engines of a simulation instead
  std::vector<LoadRequest> requests;  // by time
  std::vector<AnswerTasks> tasks;     // owns the tasks of the requests
  int64_t cut_inputs = 0;
  int64_t cut_outputs = 0;
  int64_t skipped_rows = 0;  // rows of traces that have no prompt or no answer and were left out
};

Result<Load> make_load(const std::vector<LoadStream>& streams, uint64_t seed);

}  // namespace tandem::loadgen
