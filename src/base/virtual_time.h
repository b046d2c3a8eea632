// A world in virtual time: its clock, and a heap of what will happen when. Nothing waits; time
// moves to the next thing that happens. Equal times: what was asked for first comes first, so a run
// is the same on every machine. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace tandem {

class VirtualTime final : public Clock {
 public:
  // Something that lives in this time. Must outlive what it has asked for, or be forgotten.
  class Actor {
   public:
    virtual ~Actor() = default;
    // The time that was asked for has come.
    virtual void on_time(int64_t what) = 0;
  };

  // While an actor's on_time runs: that time, and what the actor has spent since.
  [[nodiscard]] Nanos now() const override { return now_; }
  // The actor works for so long: what it does from here on happens later. It must not be called
  // again before then; others are not held up.
  void spend(Nanos work) { now_ += work; }

  // actor.on_time(what) at `when`, or now if that is past.
  void ask(Nanos when, Actor& actor, int64_t what) {
    heap_.push({when, next_number_++, &actor, what});
  }
  // Removes all that this actor has asked for. An actor calls it before it is destroyed.
  void forget(const Actor& actor) {
    decltype(heap_) kept;
    for (; !heap_.empty(); heap_.pop()) {
      if (heap_.top().actor != &actor) {
        kept.push(heap_.top());
      }
    }
    heap_ = std::move(kept);
  }
  // Lets the next thing happen. False: there is none.
  bool step();
  // The same until `happened()`, for an actor that waits: its time goes on from where it was.
  // False: nothing is left.
  template <class Happened>
  bool step_until(const Happened& happened) {
    const Nanos began = now_;
    while (!happened()) {
      if (!step()) {
        return false;
      }
    }
    now_ = std::max(now_, began);
    return true;
  }
  // When it will. Nanos::max(): there is none.
  [[nodiscard]] Nanos next() const { return heap_.empty() ? Nanos::max() : heap_.top().when; }
  [[nodiscard]] int64_t steps() const { return steps_; }

 private:
  struct Entry {
    Nanos when;
    int64_t number;
    Actor* actor;
    int64_t what;
  };
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const {
      return a.when != b.when ? a.when > b.when : a.number > b.number;
    }
  };

  Nanos now_{0};
  int64_t next_number_ = 0;
  int64_t steps_ = 0;
  std::priority_queue<Entry, std::vector<Entry>, Later> heap_;
};

inline bool VirtualTime::step() {
  if (heap_.empty()) {
    return false;
  }
  const Entry entry = heap_.top();
  heap_.pop();
  ++steps_;
  // An entry may lie before the time that the last actor spent: then now() goes back.
  now_ = entry.when;
  entry.actor->on_time(entry.what);
  return true;
}

}  // namespace tandem
