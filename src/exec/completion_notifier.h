// Coalesces completion notices, as a network card coalesces interrupts: decides when the owner of
// an executor is called because the device or the attention host has completed something.
//
// While a step launches groups beside residents, the owner polls at every bind anyway, and being
// called for each copy and each answer in between would cost more than it gains. The owner then
// sets a minimum interval. At interval 0 it polls only when it is called.
//
//   source                                       calls the owner
//   ring()                                       always
//   event of record(kOnCompletion)               when it completes
//   event of record(kPolled)                     when it completes, if the interval is 0
//   answered() without more_follow               unless it was called for answers since polled()
//   answered() with more_follow                  the same, and only after the interval has passed
//                                                since the last call for answers
//
// Setting the interval back to 0 calls the owner for everything that was held back, so a completion
// is never lost: the owner was called for it, or has polled since.
//
// Threads: set_min_interval, polled and record on the engine thread; ring and answered on any. The
// owner is called on the thread of the source and must be quick.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "device/device.h"
#include "piggyback/attention_host.h"

namespace tandem {

enum class Notify : uint8_t { kOnCompletion, kPolled };

class CompletionNotifier {
 public:
  // `device` must outlive all calls of record. `owner` may be empty.
  CompletionNotifier(device::Device& device, std::function<void()> owner);
  CompletionNotifier(const CompletionNotifier&) = delete;
  CompletionNotifier& operator=(const CompletionNotifier&) = delete;

  void set_min_interval(Nanos interval);
  // The owner takes all completions from here on.
  void polled();
  // Records an event on `stream`, whose completion calls the owner as the table says.
  device::EventId record(device::StreamId stream, Notify notify);

  void ring() { owner_(); }
  void answered(const piggyback::AnswerNotice& notice);

 private:
  device::Device& device_;
  const std::function<void()> owner_;
  std::vector<device::StreamId> polled_streams_;  // with kPolled events since the interval was set
  std::atomic<Nanos> min_interval_{Nanos{0}};
  std::atomic<bool> called_{false};     // for answers, since polled()
  std::atomic<bool> held_back_{false};  // answers, since polled()
  std::atomic<Nanos> last_call_{Nanos{0}};
};

}  // namespace tandem
