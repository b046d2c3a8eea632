// Finds out what a second tier takes, by running some of it: attention on the host by rows and
// context, copies by bytes, and steps with visitors beside the same steps without. The counterpart
// of profiler.h, and measured after it: what a visitor costs beside its row takes the dense stages'
// ladder.
//
// One thread.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/result.h"
#include "latency/accuracy.h"
#include "latency/host_times.h"
#include "latency/modular_model.h"
#include "latency/profiler.h"

namespace tandem::latency {

enum class LinkWay : uint8_t { kToHost, kFromHost };

// What a host meter may be asked for.
struct HostLimits {
  int32_t rows = 0;        // attended to at a time
  int32_t context = 0;     // of a row
  int64_t tokens = 0;      // of all rows
  int64_t copy_bytes = 0;  // of a copy
  int32_t residents = 0;   // of a step
  int32_t visitors = 0;    // on their way at a time
};

// Steps of `residents` decodes with short contexts, as medians of some in a row.
struct TierSteps {
  double step_nanos = 0;
  double engine_nanos = 0;      // in which the engine's thread plans, binds, pumps and launches
  double visits = 0;            // at stages 0 .. layers - 1, of a step in the mean
  double resident_context = 0;  // of all of them
  double groups = 0;            // that a step is launched in
  HopBytes hop;                 // of a visit's row; 0 without visits
};

// Attention of one layer.
struct HostAttended {
  Nanos took{0};  // until all rows are back
  Nanos busy{0};  // that each worker was at work, in the mean
};

// Whoever can do these things and time them: a real executor, or a made-up machine in tests.
class HostMeter {
 public:
  virtual ~HostMeter() = default;
  [[nodiscard]] virtual HostLimits limits() const = 0;
  // Attention of one layer for `rows` offloaded tokens of that context each: until all are back.
  virtual Result<HostAttended> attention(int32_t rows, int32_t context) = 0;
  virtual Result<Nanos> copy(LinkWay way, int64_t bytes) = 0;
  virtual Result<TierSteps> steps(int32_t residents, int32_t visitors) = 0;
  // Without visitors, each stage launched by itself as in steps with lanes.
  virtual Result<TierSteps> lane_steps(int32_t residents) = 0;
};

struct HostProfilerOptions {
  Nanos time{std::chrono::seconds(10)};  // for measuring, about
  int32_t repeats = 9;                   // of each point; fewer where the time is over
};

struct MeasuredHost {
  HostTimes times;
  double per_visit = 0;  // for ModularCosts
  // On the points that were measured.
  Accuracy attention_accuracy;
  Accuracy link_accuracy;
};

// `clock` is the one that `meter`'s time passes on. `progress` may be empty.
Result<MeasuredHost> measure_host(HostMeter& meter, const ModularCosts& costs,
                                  const HostProfilerOptions& options, const Clock& clock,
                                  const ProfileProgress& progress);

}  // namespace tandem::latency
