#include "exec/completion_notifier.h"

#include <algorithm>
#include <utility>

namespace tandem {

CompletionNotifier::CompletionNotifier(device::Device& device, std::function<void()> owner)
    : device_(device), owner_(owner ? std::move(owner) : std::function<void()>([] {})) {}

void CompletionNotifier::set_min_interval(Nanos interval) {
  min_interval_.store(interval);
  if (interval > Nanos{0}) {
    return;
  }
  // A stream's events complete in order, so one more event covers all that were polled.
  for (const device::StreamId stream : polled_streams_) {
    device_.record(stream);
  }
  polled_streams_.clear();
  if (held_back_.exchange(false)) {
    ring();
  }
}

void CompletionNotifier::polled() {
  called_.store(false);
  held_back_.store(false);
}

device::EventId CompletionNotifier::record(device::StreamId stream, Notify notify) {
  if (notify == Notify::kOnCompletion ||
      min_interval_.load(std::memory_order_relaxed) == Nanos{0}) {
    return device_.record(stream);
  }
  if (std::ranges::find(polled_streams_, stream) == polled_streams_.end()) {
    polled_streams_.push_back(stream);
  }
  return device_.record_polled(stream);
}

void CompletionNotifier::answered(const piggyback::AnswerNotice& notice) {
  const Nanos interval = min_interval_.load();
  if (notice.more_follow && interval > Nanos{0} && notice.at - last_call_.load() < interval) {
    held_back_.store(true);
    // set_min_interval(0) may have looked at held_back_ just before: then the call is made here.
    if (min_interval_.load() > Nanos{0} || !held_back_.exchange(false)) {
      return;
    }
  }
  if (!called_.exchange(true)) {
    last_call_.store(notice.at);
    ring();
  }
}

}  // namespace tandem
