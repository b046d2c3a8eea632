#include "request/sequence_state.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tandem {
namespace {

std::vector<SequenceState> all_states() {
  std::vector<SequenceState> states;
  for (int i = 0; i < kSequenceStates; ++i) {
    states.push_back(static_cast<SequenceState>(i));
  }
  return states;
}

TEST(SequenceState, CancelIsLegalInEveryStateThatHasNotEnded) {
  for (const SequenceState state : all_states()) {
    const bool ended = state == SequenceState::kFinishing || state == SequenceState::kDone;
    EXPECT_EQ(may_change(state, SequenceState::kFinishing), !ended) << state_name(state);
  }
}

TEST(SequenceState, NothingFollowsDoneAndOnlyDoneFollowsFinishing) {
  for (const SequenceState to : all_states()) {
    EXPECT_FALSE(may_change(SequenceState::kDone, to));
    EXPECT_EQ(may_change(SequenceState::kFinishing, to), to == SequenceState::kDone);
  }
}

TEST(SequenceState, NoStateFollowsItselfAndNoneReturnsToQueued) {
  for (const SequenceState state : all_states()) {
    EXPECT_FALSE(may_change(state, state)) << state_name(state);
    EXPECT_FALSE(may_change(state, SequenceState::kQueued)) << state_name(state);
  }
}

TEST(SequenceState, RandomLegalWalksCanAlwaysReachDone) {
  std::mt19937 random(7);
  for (int walk = 0; walk < 200; ++walk) {
    StateMachine machine;
    for (int i = 0; i < 50 && machine.state() != SequenceState::kDone; ++i) {
      const auto next = static_cast<SequenceState>(random() % kSequenceStates);
      if (may_change(machine.state(), next)) {
        machine.change_to(next);
      }
    }
    if (machine.state() != SequenceState::kDone && machine.state() != SequenceState::kFinishing) {
      machine.change_to(SequenceState::kFinishing);
    }
    if (machine.state() == SequenceState::kFinishing) {
      machine.change_to(SequenceState::kDone);
    }
    EXPECT_EQ(machine.state(), SequenceState::kDone);
  }
}

TEST(SequenceStateDeathTest, AnIllegalChangeStopsTheProcessAndNamesBothStates) {
  StateMachine machine;
  EXPECT_DEATH(machine.change_to(SequenceState::kDecoding), "from queued to decoding");
}

}  // namespace
}  // namespace tandem
