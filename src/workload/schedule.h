// What a run will send, decided before it starts: one or more streams of requests, each with its
// own arrivals, lengths, models and class, merged by time. The same options and seed give the same
// schedule. Sends nothing and knows no text: a prompt is parts of so many tokens, each with a seed;
// equal seeds stand for equal text, which is how prefixes are shared. Threads: any.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "workload/arrivals.h"
#include "workload/lengths.h"
#include "workload/trace.h"

namespace tandem::workload {

struct PromptPart {
  uint64_t seed = 0;
  int32_t tokens = 0;
  friend bool operator==(const PromptPart&, const PromptPart&) = default;
};

struct PlannedRequest {
  Nanos at{0};         // since the start of the run
  int32_t stream = 0;  // index into the options
  int32_t share = 0;   // index into the stream's shares
  int32_t model = 0;   // index into the stream's models
  int32_t input_tokens = 0;
  int32_t output_tokens = 0;
  std::vector<PromptPart> prompt;  // sums up to input_tokens
};

// Where a stream's requests come from.
enum class Source : uint8_t {
  kRandom,  // lengths drawn one by one
  kTrace,   // rows of `trace`, in their order
};

struct StreamOptions {
  Source source = Source::kRandom;
  ArrivalOptions arrivals;
  bool arrivals_from_trace = false;      // kTrace: the rows' times instead of `arrivals`
  std::shared_ptr<const Trace> trace;    // kTrace
  int32_t block_tokens = 512;            // of one hash id of the trace
  Nanos trace_begin{0};                  // rows from here ...
  Nanos trace_length = Nanos::max();     // ... for so long
  double trace_keep = 1.0;               // share of rows that stay, each by chance
  double trace_speed = 1.0;              // 2: in half the time
  double length_scale = 1.0;             // of a trace's lengths
  Lengths input = Lengths::fixed(1024);  // kRandom
  Lengths output = Lengths::fixed(128);
  int32_t prefix_tokens = 0;                // kRandom: shared beginning, before the drawn input
  int32_t prefixes = 1;                     // as many different ones, each request draws one
  int32_t most_input_tokens = kMostTokens;  // longer ones are cut
  int32_t most_output_tokens = kMostTokens;
  std::optional<int64_t> requests;  // at most; absent: what trace or duration give
  Nanos duration = Nanos::max();    // no arrival later than this
  int32_t models = 1;               // a trace's model_id modulo this, else drawn evenly
  std::vector<double> shares;       // requests are dealt out by chance; empty: one share
};

struct Schedule {
  std::vector<PlannedRequest> requests;  // by time, then by stream
  int64_t cut_inputs = 0;                // prompts and answers shortened to the limits
  int64_t cut_outputs = 0;
};

inline constexpr int64_t kMostRequests = 10'000'000;

Result<Schedule> make_schedule(const std::vector<StreamOptions>& streams, uint64_t seed);

}  // namespace tandem::workload
