// What a stream of the emulated accelerator does with an op: runs it and counts. The stream's
// thread.
#pragma once

#include <memory>

#include "base/clock.h"
#include "device/cpu/op_runner.h"
#include "device/cpu/stream.h"
#include "device/emulated/op_check.h"
#include "device/emulated/stream_counters.h"

namespace tandem::device {

class EmulatedWork final : public StreamWork {
 public:
  // All of these must outlive the stream.
  EmulatedWork(const kernels::Kernels& kernels, WorkerPool& pool, const Tiers& tiers,
               StreamCounters& counters)
      : runner_(kernels, pool), tiers_(tiers), counters_(counters) {}

  void run(const Op& op) override;
  void before_event() override { runner_.before_event(); }
  void after_pause() override {}

 private:
  OpRunner runner_;
  const Tiers tiers_;
  StreamCounters& counters_;
  const SteadyClock clock_;
};

}  // namespace tandem::device
