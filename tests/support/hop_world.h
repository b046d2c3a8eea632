// For tests: a world around a HopCore in which every row of every buffer holds a mark of what lies
// there, and streams, copies, workers and their faults happen in a random order. Each consumer
// looks whether the mark is the one it needs, so a wrong route, an early reuse, a double or lost
// result shows as data would show it. Virtual time; the same seed, the same schedule.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "piggyback/core/hop_core.h"

namespace tandem::piggyback {

struct WorldOptions {
  HopLimits limits;
  int32_t sequences = 8;
  int32_t group_stages = 2;  // launched together
  int64_t actions = 3000;    // before it drains
  uint64_t seed = 1;
  bool audit = true;  // HopCore::audit after every action
  // Chances in percent.
  int32_t leave = 0;  // of an action to make a sequence leave
  int32_t fail = 0;   // of an attempt to fail
  int32_t hang = 0;   // of an attempt to take very long
  int32_t twice = 0;  // of an answer to come again, much later
  int32_t retry = 0;  // of an action to call whatever is with a worker overdue
  int32_t move = 0;   // of an action to put a sequence into a lane
};

// Worlds that differ in sizes and faults.
struct WorldCase {
  std::string name;
  WorldOptions options;
};
std::vector<WorldCase> world_cases();

struct WorldCounts {
  int64_t tokens = 0;  // that visited the last stage
  int64_t visits = 0;
  int64_t failed = 0;
  int64_t left = 0;
  int64_t moved = 0;    // tokens under way, from one lane to the other
  int64_t refused = 0;  // answers that were not wanted
};

class HopWorld {
 public:
  explicit HopWorld(const WorldOptions& options);

  // Runs the schedule and drains. The first thing that went wrong; empty: nothing.
  std::string run();
  [[nodiscard]] const WorldCounts& counts() const { return counts_; }

 private:
  using Mark = int64_t;  // token * kKinds * stages + stage * kKinds + kind; 0: nothing
  enum Kind { kRouted = 1, kAttended = 2, kResidual = 3, kKinds = 4 };
  enum class Life { kAbsent, kIdle, kActive, kLeaving };

  struct Sequence {
    Life life = Life::kAbsent;
    int64_t token = 0;       // unique in the world
    int32_t next_stage = 0;  // to be bound
    int32_t computed = 0;    // stages that the device has been through
    bool out = false;
    int64_t ticket = 0;  // names the group of its last visit
    int32_t lane = 0;
    Nanos joined{0};         // its lane's queue
    int32_t references = 0;  // in groups, copies and workers
  };
  struct Group {
    int64_t ticket = 0;
    std::vector<std::vector<Visit>> stages;
    int32_t first_stage = 0;
  };
  struct Exit {
    int64_t ticket = 0;
    int32_t stage = 0;
    std::vector<Visit> visits;
  };
  struct Attempt {
    HopTask task;
    Mark routed = 0;
    int64_t not_before = 0;
  };

  bool act(bool draining);
  void enter();
  void launch();
  void compute();
  void compute_visit(const Visit& visit, int32_t stage);
  void copy_exit();
  void hand_out();
  void answer(bool draining);
  void start_return();
  void copy_return();
  void leave();
  void retry();
  void move();
  void look_at_lanes();
  void collect();
  void look_at_stages();
  void gone(Sequence& sequence);
  void drain();
  [[nodiscard]] bool quiet() const;

  Mark mark(const Sequence& sequence, int32_t stage, Kind kind) const {
    return (sequence.token * (options_.limits.last_stage + 1) + stage) * kKinds + kind;
  }
  Sequence& of(SequenceId id) { return sequences_[static_cast<size_t>(raw(id))]; }
  bool chance(int32_t percent) { return pick(100) < percent; }
  int64_t pick(int64_t below) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(below));
  }
  void expect(bool holds, const std::string& what) {
    if (!holds && wrong_.empty()) {
      wrong_ = what;
    }
  }

  WorldOptions options_;
  HopCore core_;
  std::mt19937_64 random_;
  WorldCounts counts_;
  std::string wrong_;
  Nanos now_{0};
  int64_t action_ = 0;
  int64_t ticket_ = 0;
  int64_t token_ = 0;
  std::vector<Sequence> sequences_;
  std::vector<Mark> ring_, outbox_, results_, returns_, residual_;
  std::vector<Mark> due_back_;     // by hop row: the result that it is for
  std::vector<SequenceId> owner_;  // by hop row
  std::deque<Group> groups_;
  std::deque<Group> computed_;  // not told yet
  std::deque<Exit> exits_;
  std::deque<Exit> copied_;  // not told yet
  std::vector<Attempt> attempts_;
  std::vector<Attempt> echoes_;  // answers that will come again
  std::deque<std::vector<RowRun>> back_;
  std::deque<std::vector<RowRun>> returned_;  // not told yet
};

}  // namespace tandem::piggyback
