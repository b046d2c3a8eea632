#include "device/emulated/emulated_work.h"

#include <sys/prctl.h>
#include <time.h>

#include <thread>

#include "device/op_queries.h"

namespace tandem::device {
namespace {

// Of a copy that is held back on purpose.
constexpr Nanos kLongestHold = std::chrono::milliseconds(50);
// The kernel wakes a sleeper this much late at worst on a quiet machine.
constexpr Nanos kSpinTail = std::chrono::microseconds(50);
// How long before its turn a copy asks for the link at most. Short copies ask several at a time:
// each sleep costs the host's cores something.
constexpr Nanos kAskAhead = std::chrono::milliseconds(1);

}  // namespace

void EmulatedWork::hold() {
  constexpr uint64_t kThousand = 1000;
  if (static_cast<int32_t>(fault_random_() % kThousand) < held_) {
    std::this_thread::sleep_for(
        Nanos{static_cast<int64_t>(fault_random_() % static_cast<uint64_t>(kLongestHold.count()))});
  }
}

void EmulatedWork::run(const Op& op) {
  if (held_ > 0 && counters_.kind() != StreamKind::kCompute) {
    hold();
  }
  const Nanos length = paced() ? length_of(op) : Nanos{0};
  const Nanos begin = clock_.now();
  if (!hollow_ || !hollow_->stand_in(op)) {
    runner_.run(op);
  }
  const Nanos end = clock_.now();
  if (paced()) {
    const Nanos modelled_begin = pacer_.due();
    pacer_.charge(length, end);
    show(op, modelled_begin, pacer_.due());
  } else {
    show(op, begin, end);
  }
  counters_.add_op(paced() ? length : end - begin);
  if (const CopyOp* copy = copy_of(op); copy != nullptr && copy->bytes > 0) {
    counters_.add_copy(direction_of(*copy, tiers_), copy->bytes);
  }
}

void EmulatedWork::show(const Op& op, Nanos begin, Nanos end) {
  if (track_ != nullptr) {
    const OpLabel label = label_of(op);
    track_->add({.name = label.name,
                 .begin = begin,
                 .end = end,
                 .detail = label.detail,
                 .value = label.value});
  }
}

Nanos EmulatedWork::slowed(Nanos time) const {
  return Nanos{static_cast<int64_t>(static_cast<double>(time.count()) * pace_.slowdown)};
}

Nanos EmulatedWork::length_of(const Op& op) {
  if (const CopyOp* copy = copy_of(op)) {
    return length_of_copy(*copy);
  }
  return slowed(op_time(*pace_.profile, op));
}

Nanos EmulatedWork::length_of_copy(const CopyOp& copy) {
  if (copy.bytes <= 0) {
    return Nanos{0};
  }
  const CopyDirection direction = direction_of(copy, tiers_);
  if (direction == CopyDirection::kHostToHost) {
    return Nanos{0};
  }
  if (direction == CopyDirection::kDeviceToDevice) {
    return slowed(op_time(*pace_.profile, copy));  // only compute streams make these
  }
  const Nanos length = slowed(link_transfer_time(pace_.link->bytes_per_second(), copy.bytes));
  const LinkDirection way =
      direction == CopyDirection::kDeviceToHost ? LinkDirection::kToHost : LinkDirection::kToDevice;
  if (counters_.kind() == StreamKind::kCompute) {
    return pace_.link->share(way, pacer_.due(), length) + slowed(kLinkLatency);
  }
  // Copies without an event between them must not take the link for all of them at once: another
  // stream's rows would wait for a whole sequence's blocks.
  if (pacer_.due() - clock_.now() > kAskAhead) {
    sleep_until(pacer_.due() - kAskAhead / 2);
  }
  pacer_.not_before(pace_.link->reserve(way, pacer_.due(), length));
  return length + slowed(kLinkLatency);
}

void EmulatedWork::before_event() {
  runner_.before_event();
  counters_.add_event();
  if (paced()) {
    sleep_until(pacer_.settle(clock_.now()));
    pacer_.completed(clock_.now());
    counters_.set_pacing(pacer_.overruns(), pacer_.lateness());
  }
}

void EmulatedWork::after_pause() {
  if (paced()) {
    pacer_.not_before(clock_.now());
  }
}

// Sleeps most of the time and looks at the clock at its end; other streams' threads on the same
// core go first.
void EmulatedWork::sleep_until(Nanos time) {
  if (time - clock_.now() > 2 * kSpinTail) {
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    const Nanos wake = time - kSpinTail;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wake);
    const timespec until{.tv_sec = static_cast<time_t>(seconds.count()),
                         .tv_nsec = static_cast<long>((wake - seconds).count())};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
    }
  }
  while (clock_.now() < time) {
    std::this_thread::yield();
  }
}

}  // namespace tandem::device
