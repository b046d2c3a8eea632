// A bell in virtual time: whoever waits for it lets time pass. One thread.
#pragma once

#include "base/bell.h"
#include "base/check.h"
#include "base/virtual_time.h"

namespace tandem::sim {

class VirtualBell final : public Bell {
 public:
  explicit VirtualBell(VirtualTime& time) : time_(time) {}

  void ring() override { rung_ = true; }
  void wait() override {
    const bool heard = time_.step_until([this] { return rung_; });
    CHECK(heard, "nothing is left that could ring");
    rung_ = false;
  }
  void wait_for(Nanos limit) override {
    const Nanos until = time_.now() + limit;
    const bool heard = time_.step_until([&] { return rung_ || time_.next() > until; });
    if (!heard || !rung_) {
      time_.spend(until - time_.now());
    }
    rung_ = false;
  }

 private:
  VirtualTime& time_;
  bool rung_ = false;
};

}  // namespace tandem::sim
