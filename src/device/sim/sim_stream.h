// One stream of a simulated device: what was issued, in order, and when each thing is done. Ops
// that need nothing but the stream are settled when they are issued; a copy between the tiers waits
// in virtual time until it may take its place on the link, and what stands behind it waits too. So
// does an op on a host whose bandwidth is shared. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "base/virtual_time.h"
#include "device/device.h"
#include "device/sim/shared_bandwidth.h"

namespace tandem::device {

// A link between the tiers, one direction: first come, first served, for hops and swaps alike. What
// a compute stream moves shares it with them (as emulated/link.h says).
struct SimLink {
  // When a copy is done that may begin at `ready` and takes `transfer` of the link alone.
  Nanos queue(Nanos ready, Nanos transfer) {
    free_at = std::max(ready, free_at) + transfer;
    return free_at;
  }
  Nanos share(Nanos ready, Nanos transfer) {
    const Nanos others = std::max(free_at - ready, Nanos{0});
    free_at = std::max(ready, free_at) + transfer;
    return ready + transfer + std::min(transfer, others);
  }

  double bytes_per_second = 0;
  Nanos latency{0};  // of each copy; streams pay it beside each other
  Nanos free_at{0};
  int64_t bytes = 0;  // carried so far
};

class SimStream final : public VirtualTime::Actor {
 public:
  SimStream(VirtualTime& time, StreamKind kind) : time_(time), kind_(kind) {}
  ~SimStream() override;
  SimStream(const SimStream&) = delete;
  SimStream& operator=(const SimStream&) = delete;

  // Its ops share this bandwidth, which must outlive the stream. Before the first op.
  void share(SharedBandwidth& bandwidth);

  // An op of so long a time. `memory`: as SharedBandwidth::Job has it; without sharing it does not
  // count.
  void run(Nanos duration, Nanos memory = Nanos{0});
  // A copy over the link, which must outlive the stream.
  void carry(SimLink& link, int64_t bytes);
  // The number of an event: 1, 2, ...; `quiet`: the listener is not told.
  int64_t record(bool quiet);
  // What follows begins after that event of the other stream, which must outlive this one.
  void wait(SimStream& other, int64_t event);
  [[nodiscard]] bool is_done(int64_t event) const { return event <= done_; }

  void set_listener(const std::function<void()>* listener) { listener_ = listener; }
  // Called with each op's beginning and end as soon as they are settled; it outlives the stream.
  void set_watcher(const std::function<void(Nanos, Nanos)>* watcher) { watcher_ = watcher; }
  [[nodiscard]] StreamStatistics statistics() const {
    return {.kind = kind_, .ops = ops_, .events = recorded_, .busy = busy_};
  }

  void on_time(int64_t what) override;

 private:
  enum class Kind : uint8_t { kRun, kShared, kCarry, kRecord, kQuietRecord, kWait };
  struct Entry {
    Kind kind = Kind::kRun;
    Nanos issued{0};
    Nanos duration{0};
    Nanos memory{0};
    int64_t number = 0;  // bytes of kCarry, an event else
    SimLink* link = nullptr;
    SimStream* other = nullptr;
  };
  static constexpr int64_t kGoOn = 0;  // what on_time is told; else the number of an event

  void add(const Entry& entry);
  // False: it cannot begin yet, and on_time(kGoOn) will come when it may.
  bool settle(const Entry& entry);
  void go_on();
  void finish_shared(Nanos began);
  void wake_waiting();

  VirtualTime& time_;
  const StreamKind kind_;
  SharedBandwidth* bandwidth_ = nullptr;
  SharedBandwidth::User user_ = 0;
  const std::function<void()>* listener_ = nullptr;
  const std::function<void(Nanos, Nanos)>* watcher_ = nullptr;
  Nanos free_at_{0};                                     // when all that is settled is done
  std::deque<Entry> queue_;                              // not settled; the first one waits
  std::deque<bool> pending_;                             // settled events that are not done: quiet?
  std::vector<std::pair<int64_t, SimStream*>> waiting_;  // for an event of this stream
  int64_t recorded_ = 0;
  int64_t done_ = 0;
  int64_t ops_ = 0;
  Nanos busy_{0};
};

}  // namespace tandem::device
