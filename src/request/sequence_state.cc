#include "request/sequence_state.h"

#include <array>
#include <initializer_list>

#include "base/check.h"

namespace tandem {
namespace {

using S = SequenceState;

constexpr uint32_t bit(S state) { return 1U << static_cast<int>(state); }

constexpr uint32_t set_of(std::initializer_list<S> states) {
  uint32_t bits = bit(S::kFinishing);  // cancel is legal everywhere but at the end
  for (const S state : states) {
    bits |= bit(state);
  }
  return bits;
}

// By current state: what may follow.
constexpr std::array<uint32_t, kSequenceStates> kNext = {
    set_of({S::kAdmitted}),                                                 // queued
    set_of({S::kPrefilling, S::kDecoding, S::kDropped}),                    // admitted
    set_of({S::kDecoding, S::kOffloading, S::kSwapped, S::kDropped}),       // prefilling
    set_of({S::kOffloading, S::kSwapped, S::kDropped}),                     // decoding
    set_of({S::kParkedWaiting, S::kSwapped, S::kDropped}),                  // offloading
    set_of({S::kParkedInFlight, S::kOnloading, S::kSwapped, S::kDropped}),  // parked, waiting
    set_of({S::kParkedWaiting, S::kDropped}),                               // parked, in flight
    set_of(
        {S::kPrefilling, S::kDecoding, S::kParkedWaiting, S::kSwapped, S::kDropped}),  // onloading
    set_of({S::kOnloading, S::kParkedWaiting, S::kDropped}),                           // swapped
    set_of({S::kAdmitted}),                                                            // dropped
    bit(S::kDone),                                                                     // finishing
    0,                                                                                 // done
};

constexpr std::array<std::string_view, kSequenceStates> kNames = {
    "queued",           "admitted",  "prefilling", "decoding", "offloading", "parked_waiting",
    "parked_in_flight", "onloading", "swapped",    "dropped",  "finishing",  "done"};

}  // namespace

std::string_view state_name(SequenceState state) { return kNames.at(static_cast<size_t>(state)); }

bool may_change(SequenceState from, SequenceState to) {
  return (kNext.at(static_cast<size_t>(from)) & bit(to)) != 0;
}

void StateMachine::change_to(SequenceState next) {
  CHECK(may_change(state(), next), "a sequence cannot go from {} to {}", state_name(state()),
        state_name(next));
  state_ = static_cast<uint8_t>(next) & 0x7fU;
  changed_ = 1;
}

}  // namespace tandem
