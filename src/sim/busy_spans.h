// When the two sides of a simulated machine work: how long each of them did, and how long both did
// at a time. One thread.
#pragma once

#include <deque>

#include "base/clock.h"

namespace tandem::sim {

// When one side works: spans of time, known from when the work is handed out.
class BusySpans {
 public:
  struct Span {
    Nanos begin{0};
    Nanos end{0};
  };

  // May overlap earlier spans, and begin before them.
  void add(Nanos begin, Nanos end);
  // Ascending and apart from each other.
  [[nodiscard]] const std::deque<Span>& spans() const { return spans_; }
  // How long the side works in this window; what is forgotten does not count.
  [[nodiscard]] Nanos within(const Span& window) const;
  // Forgets what lies before `time`.
  void drop_before(Nanos time);

 private:
  std::deque<Span> spans_;
};

struct BusyTimes {
  Nanos accelerator{0};
  Nanos host{0};
  Nanos both{0};  // at a time

  void add(const BusyTimes& other);
};

class BusySides {
 public:
  BusySpans accelerator;
  BusySpans host;

  // Of the time since the last call, or since `begin`. What is added later must not begin before
  // `until`: it would not count.
  BusyTimes settle(Nanos until);
  // Up to where.
  [[nodiscard]] Nanos settled() const { return settled_; }
  // Forgets everything before `now`.
  void begin(Nanos now);

 private:
  Nanos settled_{0};
};

}  // namespace tandem::sim
