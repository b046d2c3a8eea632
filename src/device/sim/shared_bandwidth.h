// The memory bandwidth of a host that several users share: engines that compute on the host's
// cores, and the attention of offloaded sequences. A user does one job at a time. Jobs that need
// more than the bandwidth together get even shares, and none gets more than it needs. A user that
// works alone takes as long as on a host of its own. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "base/virtual_time.h"

namespace tandem::device {

class SharedBandwidth final : private VirtualTime::Actor {
 public:
  using User = size_t;
  struct Job {
    int64_t number = 0;  // passed to `done`
    Nanos ready{0};      // begins no earlier; never decreases among the jobs of a user
    Nanos alone{0};      // how long it takes alone
    Nanos memory{0};     // of that, how long its bytes take at the full bandwidth; at most `alone`
  };
  struct Listener {
    std::function<void(int64_t number, Nanos began)> done;  // now
    // A span of a job's time, reported at most kReport after it began.
    std::function<void(Nanos begin, Nanos end)> worked;
  };
  static constexpr Nanos kReport = std::chrono::milliseconds(50);

  // `time` must outlive it.
  explicit SharedBandwidth(VirtualTime& time) : time_(time) {}
  ~SharedBandwidth() override { time_.forget(*this); }
  SharedBandwidth(const SharedBandwidth&) = delete;
  SharedBandwidth& operator=(const SharedBandwidth&) = delete;

  User add_user(Listener listener);
  // Drops the user's jobs. Its listener is not called again.
  void remove_user(User user);
  // The user's jobs are done in the order in which they are submitted.
  void submit(User user, const Job& job);

 private:
  struct State {
    Listener listener;
    std::deque<Job> jobs;  // the first one runs, if `running`
    bool running = false;
    Nanos began{0};
    double left = 0;   // nanoseconds, alone
    double speed = 1;  // as a share of its speed alone
  };
  struct Done {
    User user = 0;
    int64_t number = 0;
    Nanos began{0};
  };

  void on_time(int64_t timer) override;
  void advance(Nanos now);
  std::vector<Done> finish();
  bool start(Nanos now);
  void share();
  void ask_next(Nanos now);

  VirtualTime& time_;
  std::vector<State> users_;
  Nanos advanced_{0};  // up to when `left` of all users holds
  int64_t timer_ = 0;  // number of the last timer; earlier timers do not count
};

}  // namespace tandem::device
