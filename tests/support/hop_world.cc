#include "support/hop_world.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "support/hop_core_view.h"

namespace tandem::piggyback {
namespace {

constexpr int64_t kHangActions = 400;

}  // namespace

std::vector<WorldCase> world_cases() {
  constexpr HopLimits usual{.slots = 8, .ring_rows = 6, .hop_rows = 16, .last_stage = 4};
  constexpr HopLimits one_row{.slots = 8, .ring_rows = 1, .hop_rows = 1, .last_stage = 2};
  constexpr HopLimits ring_of_one{.slots = 8, .ring_rows = 1, .hop_rows = 16, .last_stage = 3};
  constexpr HopLimits few_rows{.slots = 8, .ring_rows = 8, .hop_rows = 3, .last_stage = 3};
  constexpr HopLimits few_slots{.slots = 2, .ring_rows = 4, .hop_rows = 4, .last_stage = 3};
  constexpr HopLimits one_layer{.slots = 4, .ring_rows = 4, .hop_rows = 8, .last_stage = 1};
  constexpr HopLimits scarce{.slots = 8, .ring_rows = 2, .hop_rows = 4, .last_stage = 3};
  return {
      {"Calm", {.limits = usual}},
      {"OneRowOfEach", {.limits = one_row, .actions = 12000}},
      {"RingOfOne", {.limits = ring_of_one, .actions = 6000}},
      {"FewHopRows", {.limits = few_rows, .actions = 6000}},
      {"FewSlots", {.limits = few_slots, .actions = 6000, .leave = 40}},
      {"OneLayer", {.limits = one_layer}},
      {"Leaving", {.limits = usual, .leave = 60}},
      {"Moving", {.limits = usual, .move = 60}},
      {"MovingOneRow", {.limits = one_row, .actions = 12000, .move = 80}},
      {"MovingAndLeaving",
       {.limits = usual, .actions = 6000, .leave = 40, .hang = 10, .retry = 40, .move = 60}},
      {"Failing", {.limits = usual, .fail = 15}},
      {"Twice", {.limits = usual, .twice = 40}},
      {"Hanging", {.limits = usual, .actions = 6000, .hang = 10, .retry = 40}},
      {"HangingWithFewRows", {.limits = scarce, .actions = 9000, .hang = 10, .retry = 40}},
      {"Everything",
       {.limits = usual,
        .group_stages = 5,
        .actions = 9000,
        .leave = 25,
        .fail = 5,
        .hang = 8,
        .twice = 20,
        .retry = 30,
        .move = 40}},
  };
}

HopWorld::HopWorld(const WorldOptions& options)
    : options_(options),
      core_(options.limits),
      random_(options.seed),
      sequences_(static_cast<size_t>(options.sequences)),
      ring_(static_cast<size_t>(options.limits.ring_rows)),
      outbox_(static_cast<size_t>(options.limits.hop_rows)),
      results_(outbox_.size()),
      returns_(outbox_.size()),
      residual_(static_cast<size_t>(options.limits.slots)),
      due_back_(outbox_.size()),
      owner_(outbox_.size()) {}

std::string HopWorld::run() {
  while (action_ < options_.actions && wrong_.empty()) {
    act(false);
  }
  drain();
  return wrong_.empty() ? wrong_
                        : fmt::format("{} (action {}, seed {})", wrong_, action_, options_.seed);
}

bool HopWorld::act(bool draining) {
  ++action_;
  now_ += Nanos{1000};
  switch (pick(12)) {
    case 0:
      if (!draining) {
        enter();
      }
      break;
    case 1:
    case 2:
      if (!draining || HopCoreView(core_).tokens() > 0) {
        launch();
      }
      break;
    case 3:
      compute();
      break;
    case 4:
      if (!computed_.empty()) {
        core_.group_done(computed_.front().ticket);
        computed_.pop_front();
      }
      break;
    case 5:
      copy_exit();
      break;
    case 6:
      if (!copied_.empty()) {
        std::vector<HopId> hops;
        for (const Visit& visit : copied_.front().visits) {
          hops.push_back(visit.hop);
          --of(visit.sequence).references;
        }
        core_.exits_copied(hops);
        copied_.pop_front();
      }
      break;
    case 7:
      hand_out();
      break;
    case 8:
    case 9:
      answer(draining);
      break;
    case 10:
      start_return();
      copy_return();
      break;
    default:
      if (!draining && chance(options_.leave)) {
        leave();
      }
      if (chance(options_.retry)) {
        retry();
      }
      break;
  }
  if (chance(options_.move)) {
    move();
  }
  collect();
  look_at_stages();
  look_at_lanes();
  if (options_.audit) {
    const Status audit = core_.audit();
    expect(audit.ok(), audit.ok() ? "" : audit.error().message);
  }
  return wrong_.empty();
}

// Those of active sequences are what is bound next; else none is under way.
void HopWorld::look_at_stages() {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const Sequence& sequence = sequences_[i];
    const bool is_under_way =
        sequence.life == Life::kActive && sequence.next_stage <= options_.limits.last_stage;
    const int32_t stage = core_.next_stage(SequenceId{static_cast<int64_t>(i)});
    // One that has failed leaves by itself, which the world is told later.
    const bool may_have_failed = stage == -1 && (options_.fail > 0 || options_.retry > 0);
    expect(stage == (is_under_way ? sequence.next_stage : -1) || may_have_failed,
           fmt::format("sequence {} is shown at stage {}, not {}", i, stage, sequence.next_stage));
  }
}

// Tokens whose hop is in flight are expected at their stage, in their lane.
void HopWorld::look_at_lanes() {
  for (int32_t stage = 1; stage <= options_.limits.last_stage; ++stage) {
    std::array<int32_t, kLanes> coming{};
    int32_t from_before = 0;  // the last group
    for (size_t i = 0; i < sequences_.size(); ++i) {
      const Sequence& sequence = sequences_[i];
      if (sequence.out && core_.next_stage(SequenceId{static_cast<int64_t>(i)}) == stage) {
        ++coming[static_cast<size_t>(sequence.lane)];
        from_before += sequence.ticket < ticket_ ? 1 : 0;
      }
    }
    for (int32_t lane = 0; lane < kLanes; ++lane) {
      expect(core_.coming(stage, lane) == coming[static_cast<size_t>(lane)],
             fmt::format("stage {}, lane {}: {} are coming, not {}", stage, lane,
                         core_.coming(stage, lane), coming[static_cast<size_t>(lane)]));
    }
    expect(core_.coming_from_before(stage, ticket_) == from_before,
           fmt::format("stage {}: {} are coming from before, not {}", stage,
                       core_.coming_from_before(stage, ticket_), from_before));
  }
}

void HopWorld::enter() {
  const auto index = pick(options_.sequences);
  Sequence& sequence = sequences_[static_cast<size_t>(index)];
  if (sequence.life != Life::kAbsent && sequence.life != Life::kIdle) {
    return;
  }
  const bool new_one = sequence.life == Life::kAbsent;
  const bool room = HopCoreView(core_).free_slots() > 0;
  const auto lane = static_cast<int32_t>(pick(kLanes));
  const bool in = core_.enter(SequenceId{index}, static_cast<TokenId>(token_ + 1),
                              static_cast<int32_t>(token_ % 1000), now_, lane);
  expect(in == (!new_one || room), "enter and has_room disagree");
  if (in) {
    sequence.life = Life::kActive;
    sequence.token = ++token_;
    sequence.next_stage = 0;
    sequence.computed = 0;
    sequence.joined = now_;
    sequence.lane = lane;
  }
}

void HopWorld::launch() {
  if (groups_.size() > 3) {
    return;
  }
  const int32_t stages = options_.limits.last_stage + 1;
  Group group;
  group.ticket = ++ticket_;
  group.first_stage = static_cast<int32_t>(pick(stages));
  const int32_t end = std::min(stages, group.first_stage + options_.group_stages);
  for (int32_t stage = group.first_stage; stage < end; ++stage) {
    std::vector<Visit>& visits = group.stages.emplace_back();
    const auto limit = static_cast<int32_t>(pick(options_.sequences) + 1);
    const auto lane = static_cast<int32_t>(pick(kLanes + 1));  // the last: all of them
    const int32_t ready = lane == kLanes ? core_.ready(stage) : core_.ready(stage, lane);
    const int32_t credits = core_.credits(stage);
    if (lane == kLanes) {
      core_.bind(stage, limit, group.ticket, visits);
    } else {
      core_.bind_lane(stage, lane, limit, group.ticket, visits);
    }
    expect(static_cast<int32_t>(visits.size()) <= std::min({limit, ready, credits}),
           "more visits than asked for");
    std::array<Nanos, kLanes> before{};
    for (const Visit& visit : visits) {
      Sequence& sequence = of(visit.sequence);
      expect(sequence.life == Life::kActive && !sequence.out, "a visit of a sequence that is out");
      expect(sequence.next_stage == stage,
             fmt::format("sequence {} visits stage {}, not {}", raw(visit.sequence), stage,
                         sequence.next_stage));
      expect(lane == kLanes || sequence.lane == lane, "a visit of another lane");
      Nanos& lane_before = before[static_cast<size_t>(sequence.lane)];
      expect(sequence.joined >= lane_before, "a younger one went first");
      lane_before = sequence.joined;
      ++sequence.references;
      ++counts_.visits;
      sequence.next_stage = stage + 1;
      if (stage < options_.limits.last_stage) {
        sequence.out = true;
        sequence.ticket = group.ticket;
        due_back_[static_cast<size_t>(visit.hop_row)] = mark(sequence, stage, kAttended);
        owner_[static_cast<size_t>(visit.hop_row)] = visit.sequence;
      }
    }
    std::vector<ExitRun> runs;
    HopCore::exit_runs(visits, runs);
    if (!runs.empty()) {
      for (const Visit& visit : visits) {
        ++of(visit.sequence).references;
      }
      exits_.push_back({group.ticket, stage, visits});
    }
  }
  groups_.push_back(std::move(group));
}

void HopWorld::compute() {
  if (groups_.empty()) {
    return;
  }
  int32_t stage = groups_.front().first_stage;
  for (const std::vector<Visit>& visits : groups_.front().stages) {
    // All tail rows are gathered before any is routed.
    for (const Visit& visit : visits) {
      Sequence& sequence = of(visit.sequence);
      if (stage > 0) {
        expect(
            returns_[static_cast<size_t>(visit.return_row)] == mark(sequence, stage - 1, kAttended),
            fmt::format("stage {} consumes what is not its result", stage));
        expect(
            residual_[static_cast<size_t>(visit.hop.slot)] == mark(sequence, stage - 1, kResidual),
            fmt::format("stage {} finds another residual", stage));
      }
      expect(sequence.computed == stage, "a stage is computed out of order");
    }
    for (const Visit& visit : visits) {
      compute_visit(visit, stage);
    }
    ++stage;
  }
  computed_.push_back(std::move(groups_.front()));
  groups_.pop_front();
}

void HopWorld::compute_visit(const Visit& visit, int32_t stage) {
  Sequence& sequence = of(visit.sequence);
  --sequence.references;
  ++sequence.computed;
  if (stage == options_.limits.last_stage) {
    ++counts_.tokens;
    if (sequence.life == Life::kActive) {
      sequence.life = Life::kIdle;
    }
    return;
  }
  residual_[static_cast<size_t>(visit.hop.slot)] = mark(sequence, stage, kResidual);
  Mark& ring = ring_[static_cast<size_t>(visit.ring_row)];
  expect(ring == 0, "a ring row is written before it was copied");
  ring = mark(sequence, stage, kRouted);
}

void HopWorld::copy_exit() {
  if (exits_.empty() || (!groups_.empty() && groups_.front().ticket <= exits_.front().ticket)) {
    return;
  }
  const Exit& exit = exits_.front();
  std::vector<ExitRun> runs;
  HopCore::exit_runs(exit.visits, runs);
  for (const ExitRun& run : runs) {
    for (int32_t i = 0; i < run.rows; ++i) {
      Mark& ring = ring_[static_cast<size_t>(run.ring_row) + static_cast<size_t>(i)];
      outbox_[static_cast<size_t>(run.hop_row) + static_cast<size_t>(i)] = ring;
      ring = 0;
    }
  }
  for (const Visit& visit : exit.visits) {
    expect(outbox_[static_cast<size_t>(visit.hop_row)] ==
               mark(of(visit.sequence), exit.stage, kRouted),
           "the runs of a copy do not bring a row where it belongs");
  }
  copied_.push_back(std::move(exits_.front()));
  exits_.pop_front();
}

void HopWorld::hand_out() {
  HopTask task;
  for (int64_t most = pick(4) + 1; most > 0 && core_.next_task(now_, task); --most) {
    Sequence& sequence = of(task.sequence);
    expect(sequence.life == Life::kActive, "a task of a sequence that left");
    expect(task.layer + 1 == sequence.next_stage, "a task of another layer");
    ++sequence.references;
    const int64_t wait = chance(options_.hang) ? kHangActions + pick(kHangActions) : pick(30);
    attempts_.push_back({task, mark(sequence, task.layer, kRouted), action_ + wait});
  }
}

void HopWorld::answer(bool draining) {
  if (!echoes_.empty() && pick(8) == 0) {
    const HopTask task = echoes_.back().task;
    echoes_.pop_back();
    expect(!core_.task_done(task.hop, task.attempt), "an answer counts twice");
    ++counts_.refused;
  }
  if (attempts_.empty()) {
    return;
  }
  const auto index = static_cast<size_t>(pick(static_cast<int64_t>(attempts_.size())));
  const Attempt attempt = attempts_[index];
  if (attempt.not_before > action_) {
    return;
  }
  attempts_[index] = attempts_.back();
  attempts_.pop_back();
  Sequence& sequence = of(attempt.task.sequence);
  expect(sequence.life != Life::kAbsent, "a worker works for a sequence that was reported gone");
  --sequence.references;
  const auto row = static_cast<size_t>(attempt.task.hop_row);
  if (!draining && chance(options_.fail)) {
    static_cast<void>(core_.task_failed(attempt.task.hop, attempt.task.attempt));
    return;
  }
  // However late: the row is still its own.
  expect(outbox_[row] == attempt.routed, "the outbox row of an unanswered attempt was used again");
  expect(due_back_[row] == attempt.routed - kRouted + kAttended,
         "the results row of an unanswered attempt was used again");
  results_[row] = attempt.routed - kRouted + kAttended;
  counts_.refused += core_.task_done(attempt.task.hop, attempt.task.attempt) ? 0 : 1;
  if (chance(options_.twice)) {
    echoes_.push_back(attempt);
  }
}

void HopWorld::start_return() {
  std::vector<RowRun> runs;
  core_.take_returns(runs);
  if (!runs.empty()) {
    for (const RowRun& run : runs) {
      for (int32_t row = run.begin; row < run.begin + run.rows; ++row) {
        ++of(owner_[static_cast<size_t>(row)]).references;
      }
    }
    back_.push_back(std::move(runs));
  }
}

void HopWorld::copy_return() {
  if (!returned_.empty() && pick(2) == 0) {
    for (const RowRun& run : returned_.front()) {
      for (int32_t row = run.begin; row < run.begin + run.rows; ++row) {
        Sequence& sequence = of(owner_[static_cast<size_t>(row)]);
        --sequence.references;
        sequence.out = false;
        sequence.joined = now_;
      }
    }
    core_.returns_copied(returned_.front(), now_);
    returned_.pop_front();
  }
  if (back_.empty() || pick(2) == 0) {
    return;
  }
  for (const RowRun& run : back_.front()) {
    const auto begin = static_cast<size_t>(run.begin);
    for (size_t row = begin; row < begin + static_cast<size_t>(run.rows); ++row) {
      expect(results_[row] == due_back_[row], "a result travels that is not there");
      returns_[row] = results_[row];
    }
  }
  returned_.push_back(std::move(back_.front()));
  back_.pop_front();
}

void HopWorld::leave() {
  const auto index = pick(options_.sequences);
  Sequence& sequence = sequences_[static_cast<size_t>(index)];
  const bool there = sequence.life == Life::kActive || sequence.life == Life::kIdle;
  const bool left = core_.leave(SequenceId{index});
  expect(left == there, "leave of a sequence that is not there, or not of one that is");
  if (left) {
    sequence.life = Life::kLeaving;
  }
}

// Whatever the sequence does at the moment.
void HopWorld::move() {
  const auto index = pick(options_.sequences);
  Sequence& sequence = sequences_[static_cast<size_t>(index)];
  const auto lane = static_cast<int32_t>(pick(kLanes));
  const bool is_under_way = core_.next_stage(SequenceId{index}) >= 0;
  expect(core_.move_lane(SequenceId{index}, lane) == is_under_way,
         "a token changes its lane that is not under way, or does not");
  if (is_under_way && lane != sequence.lane) {
    ++counts_.moved;
    sequence.lane = lane;
    sequence.joined = now_;
  }
}

void HopWorld::retry() {
  std::vector<HopTask> hops;
  core_.overdue(now_, Nanos{40'000}, hops);
  for (const HopTask& hop : hops) {
    core_.retry(hop.hop);
  }
  core_.strand_check(now_, Nanos{4'000'000});
}

void HopWorld::collect() {
  std::vector<SequenceId> failed;
  core_.take_failed(failed);
  for (const SequenceId id : failed) {
    expect(of(id).life == Life::kActive, "a sequence fails that is not active");
    ++counts_.failed;
    gone(of(id));
  }
  std::vector<SequenceId> left;
  core_.take_left(left);
  for (const SequenceId id : left) {
    expect(of(id).life == Life::kLeaving, "a sequence is gone that did not leave");
    ++counts_.left;
    gone(of(id));
  }
}

void HopWorld::gone(Sequence& sequence) {
  expect(sequence.references == 0, "a sequence is gone while something of it is in flight");
  sequence.life = Life::kAbsent;
  sequence.out = false;
}

bool HopWorld::quiet() const {
  return groups_.empty() && computed_.empty() && exits_.empty() && copied_.empty() &&
         attempts_.empty() && back_.empty() && returned_.empty() &&
         HopCoreView(core_).tokens() == 0 && core_.in_flight() == 0;
}

void HopWorld::drain() {
  const int64_t limit = action_ + 200'000;
  while (wrong_.empty() && !quiet() && action_ < limit) {
    act(true);
  }
  expect(quiet(), fmt::format("{} tokens never arrive", HopCoreView(core_).tokens()));
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const Life life = sequences_[i].life;
    expect(life == Life::kAbsent || life == Life::kIdle, "a sequence neither rests nor is gone");
    static_cast<void>(core_.leave(SequenceId{static_cast<int64_t>(i)}));
  }
  expect(HopCoreView(core_).free_ring_rows() == options_.limits.ring_rows &&
             HopCoreView(core_).free_hop_rows() == options_.limits.hop_rows &&
             HopCoreView(core_).free_slots() == options_.limits.slots &&
             HopCoreView(core_).quarantined() == 0,
         "credits do not return to what they were");
}

}  // namespace tandem::piggyback
