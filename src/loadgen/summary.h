// What a run showed: counts, rates and distributions of all requests, of each group and of each
// model, a timeline, and whether the generator itself held the load back. Times in milliseconds
// unless a name says otherwise. Threads: any.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "loadgen/generator.h"
#include "loadgen/load.h"
#include "loadgen/record.h"
#include "loadgen/statistics.h"

namespace tandem::loadgen {

// Answers to tasks that were judged.
struct Accuracy {
  int64_t judged = 0;
  int64_t right = 0;
  [[nodiscard]] double percent() const {
    return judged == 0 ? 0 : 100.0 * static_cast<double>(right) / static_cast<double>(judged);
  }
};

struct GroupSummary {
  std::string name;
  Goodput goodput;
  int64_t planned = 0;
  int64_t sent = 0;
  int64_t done = 0;
  int64_t failed = 0;
  int64_t interrupted = 0;
  int64_t input_tokens = 0;  // of done requests, as the server counted them
  int64_t output_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t good = 0;           // done and within the targets
  int64_t aimed = 0;          // done or failed, and with targets
  int64_t aimed_good = 0;     // of these, done and within them
  int64_t judged = 0;         // done and judged by the server itself
  int64_t judged_good = 0;    // of these, within the targets by the server's clock
  int64_t other_tiers = 0;    // done as another service tier than asked
  int64_t short_outputs = 0;  // fewer tokens than planned
  int64_t other_inputs = 0;   // the server counted another prompt length than planned
  Accuracy answers;           // of done requests that asked a task
  std::map<std::string, std::string> examples;  // what the first failure of a reason said
  std::map<std::string, int64_t> reasons;       // of failures
  Distribution ttft, tpot, itl, e2el;           // of done requests
  Distribution engine_ttft;                     // by the server's clock, where it explains

  // Percent within the targets of those that have some; what failed is not within. nullopt: none
  // has.
  [[nodiscard]] std::optional<double> attainment_percent() const {
    return aimed == 0 ? std::nullopt
                      : std::optional(100.0 * static_cast<double>(aimed_good) /
                                      static_cast<double>(aimed));
  }
};

// The answers to the tasks of one ability.
struct AbilitySummary {
  std::string name;
  Accuracy all;
  std::vector<Accuracy> groups;  // as the summary's groups
  std::string wrong_id;          // of the first task that was answered wrongly; empty: none was
  std::string wrong_answer;
};

// One slice of time.
struct TimelineSlice {
  double begin_s = 0;
  int64_t planned = 0;  // arrivals of the plan: the load that was offered
  int64_t sent = 0;
  int64_t done = 0;
  int64_t failed = 0;
  int64_t chunks = 0;    // with a token, of all requests
  double under_way = 0;  // mean over the slice
};

// The generator is no fair clock any more when requests leave this late.
inline constexpr double kLatenessLimit_ms = 20;
inline constexpr double kCpuShareLimit = 0.8;

struct Summary {
  double duration_s = 0;
  GroupSummary all;
  std::vector<GroupSummary> groups;
  std::vector<GroupSummary> models;
  bool models_are_engines = false;        // as the load says
  std::vector<AbilitySummary> abilities;  // by name; empty: no task was asked
  Distribution lateness;                  // sent after it could be
  Distribution client_wait;               // held back by --max-concurrency
  double cpu_share = 0;                   // of the generator's one thread
  int64_t connections = 0;
  bool interrupted = false;
  double slice_s = 0;
  std::vector<TimelineSlice> timeline;
  double most_tokens_per_s = 0;  // of any whole second
  int64_t most_under_way = 0;
  std::vector<std::string> warnings;  // sentences

  [[nodiscard]] double per_second(int64_t count) const {
    return duration_s > 0 ? static_cast<double>(count) / duration_s : 0;
  }
};

Summary summarize(const Load& load, const RunResult& run);

}  // namespace tandem::loadgen
