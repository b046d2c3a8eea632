#include "sim/busy_spans.h"

#include <algorithm>

namespace tandem::sim {
namespace {

using Spans = std::deque<BusySpans::Span>;

Nanos shared(const BusySpans::Span& a, const BusySpans::Span& b) {
  return std::max(std::min(a.end, b.end) - std::max(a.begin, b.begin), Nanos{0});
}

Nanos within_both(const Spans& one, const Spans& other, const BusySpans::Span& window) {
  Nanos sum{0};
  auto a = one.begin();
  auto b = other.begin();
  while (a != one.end() && b != other.end() && a->begin < window.end && b->begin < window.end) {
    sum += shared({std::max(a->begin, b->begin), std::min(a->end, b->end)}, window);
    (a->end < b->end ? a : b)++;
  }
  return sum;
}

}  // namespace

void BusyTimes::add(const BusyTimes& other) {
  accelerator += other.accelerator;
  host += other.host;
  both += other.both;
}

// Nearly always the last span grows, or a new one follows it.
void BusySpans::add(Nanos begin, Nanos end) {
  if (begin >= end) {
    return;
  }
  auto after = spans_.end();
  while (after != spans_.begin() && std::prev(after)->begin > begin) {
    --after;
  }
  if (after != spans_.begin() && std::prev(after)->end >= begin) {
    --after;
    after->end = std::max(after->end, end);
  } else {
    after = spans_.insert(after, {begin, end});
  }
  auto next = std::next(after);
  while (next != spans_.end() && next->begin <= after->end) {
    after->end = std::max(after->end, next->end);
    next = spans_.erase(next);
    after = std::prev(next);
  }
}

Nanos BusySpans::within(const Span& window) const {
  Nanos sum{0};
  for (auto span = spans_.begin(); span != spans_.end() && span->begin < window.end; ++span) {
    sum += shared(*span, window);
  }
  return sum;
}

void BusySpans::drop_before(Nanos time) {
  while (!spans_.empty() && spans_.front().end <= time) {
    spans_.pop_front();
  }
}

BusyTimes BusySides::settle(Nanos until) {
  if (until <= settled_) {
    return {};
  }
  const BusySpans::Span window{settled_, until};
  const BusyTimes times{.accelerator = accelerator.within(window),
                        .host = host.within(window),
                        .both = within_both(accelerator.spans(), host.spans(), window)};
  begin(until);
  return times;
}

void BusySides::begin(Nanos now) {
  settled_ = now;
  accelerator.drop_before(now);
  host.drop_before(now);
}

}  // namespace tandem::sim
