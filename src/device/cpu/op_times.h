// The time that a stream's ops take, by kind and shape: what a step spends where. A stream's thread
// adds, any thread takes. Off unless asked for (CpuDeviceOptions::op_times).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "device/cpu/stream.h"
#include "device/device.h"
#include "device/op_listener.h"

namespace tandem::device {

struct OpTime {
  std::string name;  // "gemm 2048 x 5632"
  int64_t count = 0;
  Nanos total{};
};

class OpTimes final : public OpListener {
 public:
  void add(const Op& op, Nanos time) override;

  // What was added since the last call, in the order of first appearance.
  [[nodiscard]] std::vector<OpTime> take();

 private:
  struct Key {
    size_t kind = 0;
    int64_t n = 0;  // of a matrix product
    int64_t k = 0;
    bool operator==(const Key&) const = default;
  };
  std::mutex mutex_;
  std::vector<Key> keys_;      // of times_; guarded by mutex_
  std::vector<OpTime> times_;  // guarded by mutex_
};

// `work`, with `listener` told each op's time; it must outlive the work.
std::unique_ptr<StreamWork> timed(std::unique_ptr<StreamWork> work, OpListener& listener);

}  // namespace tandem::device
