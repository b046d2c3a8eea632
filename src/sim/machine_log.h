// What a simulated machine does in the course of a run: steps by kind, how well they were
// predicted, and slices of time with what was computed and what the memories held. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "observe/engine_observer.h"

namespace tandem::sim {

struct MachineSlice {
  int64_t steps = 0;
  Nanos step_time{0};
  int64_t prompt_tokens = 0;
  int64_t decode_tokens = 0;  // of residents
  int64_t hops = 0;
  Nanos attention{0};  // that the host's workers worked, all together
  // Sums of the state after each advance of the engine.
  int64_t looks = 0;
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t offloaded = 0;
  int64_t blocks = 0;
  int64_t host_blocks = 0;

  void add(const MachineSlice& other);
};

// Steps of one kind: decode, mixed, prefill, or waiting (none but visitors, no prediction).
struct StepKind {
  int64_t steps = 0;
  Nanos time{0};
  int64_t prompt_tokens = 0;
  int64_t decode_tokens = 0;
  Nanos predicted{0};
  Nanos error{0};  // sum of |predicted - actual|
};

class MachineLog final : public observe::EngineObserver {
 public:
  static constexpr size_t kMostSlices = 480;

  void on_step(const observe::StepRecord& record) override;
  void on_gauges(const observe::EngineGauges& gauges) override;
  void on_request(const observe::RequestRecord& /*record*/) override {}
  void on_tiers(const observe::TierRecord& record) override;

  // What comes counts from now on.
  void begin(Nanos now);

  [[nodiscard]] int64_t steps() const { return steps_; }
  // Of equal length, from the beginning on; at most kMostSlices.
  [[nodiscard]] const std::vector<MachineSlice>& slices() const { return slices_; }
  [[nodiscard]] Nanos slice_time() const { return slice_time_; }
  [[nodiscard]] const std::map<std::string, StepKind, std::less<>>& kinds() const { return kinds_; }
  [[nodiscard]] int64_t blocks() const { return blocks_; }
  [[nodiscard]] int64_t host_blocks() const { return host_blocks_; }

 private:
  MachineSlice& slice_at(Nanos time);

  Nanos began_{0};
  Nanos last_{0};  // when the last step ended
  Nanos slice_time_{std::chrono::seconds(1)};
  std::vector<MachineSlice> slices_;
  std::map<std::string, StepKind, std::less<>> kinds_;
  int64_t steps_ = 0;
  int64_t blocks_ = 0;
  int64_t host_blocks_ = 0;
  TierCounts tiers_;
};

// A line per slice, with a header.
std::string machine_csv(const MachineLog& log);

}  // namespace tandem::sim
