#include "workload/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace tandem::workload {

namespace {

// What a seed is for; each use has its own sequence, so that one option does not shift another's
// draws.
enum SeedUse : uint64_t {
  kArrivalSeed,
  kLengthSeed,
  kKeepSeed,
  kModelSeed,
  kPrefixSeed,
  kShareSeed
};

// Texts depend on the seed and on these alone, never on the stream: streams share hash ids.
enum TextUse : uint64_t { kOwnText = 100, kPrefixText, kBlockText };

Status check(const StreamOptions& options) {
  if (!options.arrivals_from_trace) {
    RETURN_IF_ERROR(check(options.arrivals));
  }
  const bool endless = options.source == Source::kRandom;
  const bool at_once =
      options.arrivals.kind == ArrivalKind::kRandom && std::isinf(options.arrivals.rate_per_s);
  if (endless && !options.requests && (at_once || options.duration == Nanos::max())) {
    return invalid_argument(
        "the stream would never end: give --num-prompts, or --duration with a "
        "--request-rate",
        "num-prompts");
  }
  if (options.requests && (*options.requests < 1 || *options.requests > kMostRequests)) {
    return invalid_argument(fmt::format("num-prompts must lie between 1 and {}", kMostRequests),
                            "num-prompts");
  }
  if (!(options.trace_keep > 0 && options.trace_keep <= 1)) {
    return invalid_argument("trace-keep must be over 0 and at most 1", "trace-keep");
  }
  if (!(options.trace_speed >= 1e-3 && options.trace_speed <= 1e3) ||
      !(options.length_scale >= 1e-6 && options.length_scale <= 1e3)) {
    return invalid_argument(
        "trace-speed (0.001 to 1000) or length-scale (1e-6 to 1000) is out of "
        "range",
        "trace-speed");
  }
  if (options.arrivals_from_trace && !options.trace->has_times) {
    return invalid_argument(
        "the trace has lengths but no times (arrival_s): give --request-rate "
        "or --arrivals",
        "dataset-path");
  }
  return {};
}

class StreamMaker {
 public:
  StreamMaker(const StreamOptions& options, int32_t index, uint64_t seed)
      : options_(options),
        index_(index),
        seed_(seed),
        arrivals_(options.arrivals, stream_seed(kArrivalSeed)),
        lengths_(stream_seed(kLengthSeed)),
        keep_(stream_seed(kKeepSeed)),
        models_(stream_seed(kModelSeed)),
        prefixes_(stream_seed(kPrefixSeed)),
        shares_(stream_seed(kShareSeed)) {}

  Status make(Schedule& schedule) {
    schedule_ = &schedule;
    return options_.source == Source::kTrace ? from_trace() : from_lengths();
  }

 private:
  [[nodiscard]] uint64_t stream_seed(SeedUse use) const {
    return mixed(mixed(seed_, use), static_cast<uint64_t>(index_));
  }

  // False once the stream is complete.
  bool add(PlannedRequest request) {
    if (request.at > options_.duration || made_ >= options_.requests.value_or(kMostRequests + 1)) {
      return false;
    }
    request.stream = index_;
    request.share = draw_share();
    schedule_->requests.push_back(std::move(request));
    ++made_;
    return made_ <= kMostRequests;
  }

  int32_t draw_share() {
    const double sum = std::accumulate(options_.shares.begin(), options_.shares.end(), 0.0);
    double at = shares_.uniform() * sum;
    int32_t share = 0;
    while (share + 1 < std::ssize(options_.shares) &&
           at >= options_.shares[static_cast<size_t>(share)]) {
      at -= options_.shares[static_cast<size_t>(share++)];
    }
    return share;
  }

  [[nodiscard]] Status check_count() const {
    return made_ <= kMostRequests
               ? Status{}
               : Status{invalid_argument(
                     fmt::format("a stream has more than {} requests", kMostRequests),
                     "num-prompts")};
  }

  Status from_lengths() {
    while (true) {
      PlannedRequest request;
      request.at = arrivals_.next();
      const int32_t drawn = options_.input.draw(lengths_);
      request.output_tokens = cut_output(options_.output.draw(lengths_));
      request.model = static_cast<int32_t>(models_.below(static_cast<uint64_t>(options_.models)));
      request.input_tokens = cut_input(int64_t{options_.prefix_tokens} + drawn);
      const int32_t prefix = std::min(options_.prefix_tokens, request.input_tokens);
      if (prefix > 0) {
        const uint64_t which = prefixes_.below(static_cast<uint64_t>(options_.prefixes));
        request.prompt.push_back({mixed(mixed(seed_, kPrefixText), which), prefix});
      }
      add_own_text(request, request.input_tokens - prefix);
      if (!add(std::move(request))) {
        return check_count();
      }
    }
  }

  Status from_trace() {
    for (const TraceRow& row : options_.trace->rows) {
      // One draw a row, so that a window does not change which rows are kept.
      if (keep_.uniform() >= options_.trace_keep || row.at < options_.trace_begin ||
          row.at - options_.trace_begin >= options_.trace_length) {
        continue;
      }
      PlannedRequest request;
      request.at =
          options_.arrivals_from_trace
              ? Nanos(std::llround(static_cast<double>((row.at - options_.trace_begin).count()) /
                                   options_.trace_speed))
              : arrivals_.next();
      request.model = row.model % options_.models;
      request.input_tokens = cut_input(scaled(row.input_tokens));
      request.output_tokens = cut_output(scaled(row.output_tokens));
      if (row.hash_ids.empty()) {
        add_own_text(request, request.input_tokens);
      } else {
        add_blocks(row, request);
      }
      if (!add(std::move(request))) {
        break;
      }
    }
    RETURN_IF_ERROR(check_count());
    if (made_ == 0) {
      return invalid_argument("no row of the trace lies in the chosen window", "trace-start");
    }
    return {};
  }

  [[nodiscard]] int64_t scaled(int32_t tokens) const {
    return std::max<int64_t>(std::llround(tokens * options_.length_scale), 1);
  }
  int32_t cut_input(int64_t tokens) {
    schedule_->cut_inputs += tokens > options_.most_input_tokens ? 1 : 0;
    return static_cast<int32_t>(std::min<int64_t>(tokens, options_.most_input_tokens));
  }
  int32_t cut_output(int64_t tokens) {
    schedule_->cut_outputs += tokens > options_.most_output_tokens ? 1 : 0;
    return static_cast<int32_t>(std::min<int64_t>(tokens, options_.most_output_tokens));
  }

  void add_own_text(PlannedRequest& request, int32_t tokens) const {
    if (tokens > 0) {
      const uint64_t own = mixed(static_cast<uint64_t>(index_), static_cast<uint64_t>(made_));
      request.prompt.push_back({mixed(mixed(seed_, kOwnText), own), tokens});
    }
  }

  // Blocks shrink with the lengths, so that a scaled trace shares the same share of its prompts.
  void add_blocks(const TraceRow& row, PlannedRequest& request) const {
    const auto block = static_cast<int32_t>(scaled(options_.block_tokens));
    int32_t left = request.input_tokens;
    for (const int64_t id : row.hash_ids) {
      const int32_t tokens = std::min(block, left);
      if (tokens == 0) {
        break;
      }
      request.prompt.push_back(
          {mixed(mixed(seed_, kBlockText), static_cast<uint64_t>(id)), tokens});
      left -= tokens;
    }
    add_own_text(request, left);  // rounding may leave a rest
  }

  const StreamOptions& options_;
  int32_t index_;
  uint64_t seed_;
  Arrivals arrivals_;
  Random lengths_, keep_, models_, prefixes_, shares_;
  Schedule* schedule_ = nullptr;
  int64_t made_ = 0;
};

}  // namespace

Result<Schedule> make_schedule(const std::vector<StreamOptions>& streams, uint64_t seed) {
  Schedule schedule;
  for (size_t i = 0; i < streams.size(); ++i) {
    CHECK(streams[i].source == Source::kRandom || streams[i].trace != nullptr,
          "stream {} has no trace", i);
    RETURN_IF_ERROR(check(streams[i]));
    RETURN_IF_ERROR(StreamMaker(streams[i], static_cast<int32_t>(i), seed).make(schedule));
  }
  std::ranges::stable_sort(schedule.requests, {}, &PlannedRequest::at);
  return schedule;
}

}  // namespace tandem::workload
