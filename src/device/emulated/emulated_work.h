// What a stream of the emulated accelerator does with an op: runs it, or stands in for it in a
// hollow device, counts it, and holds its event back until the modelled accelerator would have come
// so far. The stream's thread.
#pragma once

#include <optional>
#include <random>

#include "base/clock.h"
#include "device/cpu/op_runner.h"
#include "device/cpu/stream.h"
#include "device/emulated/cost_model.h"
#include "device/emulated/hollow_rows.h"
#include "device/emulated/link.h"
#include "device/emulated/op_check.h"
#include "device/emulated/pacer.h"
#include "device/emulated/stream_counters.h"
#include "observe/timeline.h"

namespace tandem::device {

struct StreamPace {
  const AcceleratorProfile* profile = nullptr;  // of a compute stream; null: it runs freely
  Link* link = nullptr;                         // null: copies run freely
  double slowdown = 1;
};

class EmulatedWork final : public StreamWork {
 public:
  // `pool`, the tiers, the link and the counters must outlive the stream.
  EmulatedWork(const kernels::KernelSet& kernels, WorkerPool& pool, const Tiers& tiers,
               StreamCounters& counters)
      : runner_(kernels, pool), tiers_(tiers), counters_(counters) {}

  // Before the stream begins.
  void set_pace(const StreamPace& pace) { pace_ = pace; }
  void set_hollow(uint64_t seed) { hollow_.emplace(seed); }
  // Of the copies between the tiers, `held` of a thousand are held back; the seed says which.
  void hold_copies(int32_t held, uint64_t seed) {
    held_ = held;
    fault_random_.seed(seed);
  }
  void set_track(observe::Track* track) { track_ = track; }

  void run(const Op& op) override;
  void before_event() override;
  void after_pause() override;

 private:
  [[nodiscard]] bool paced() const {
    return counters_.kind() == StreamKind::kCompute ? pace_.profile != nullptr
                                                    : pace_.link != nullptr;
  }
  [[nodiscard]] Nanos slowed(Nanos time) const;
  // The op's modelled length from the pacer's time on.
  Nanos length_of(const Op& op);
  Nanos length_of_copy(const CopyOp& copy);
  void sleep_until(Nanos time);
  void hold();
  void show(const Op& op, Nanos begin, Nanos end);

  OpRunner runner_;
  const Tiers tiers_;
  StreamCounters& counters_;
  StreamPace pace_;
  std::optional<HollowRows> hollow_;
  Pacer pacer_;
  observe::Track* track_ = nullptr;  // null: nobody looks
  int32_t held_ = 0;
  std::mt19937_64 fault_random_;
  const SteadyClock clock_;
};

}  // namespace tandem::device
