// The states of a sequence and the one table of legal changes between them. Any
// thread.
//
//   queued -> admitted -> prefilling -> decoding -> finishing -> done
// and, when room is needed: dropped (to be recomputed); on two tiers also offloading, parked,
// onloading and swapped. Cancel is legal in every state: it leads through finishing, where blocks
// wait until nothing in flight touches them.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem {

enum class SequenceState : uint8_t {
  kQueued,          // accepted, no blocks
  kAdmitted,        // chosen to run: blocks may be reserved, nothing computed yet
  kPrefilling,      // part of its known tokens computed
  kDecoding,        // resident: all known tokens but the last computed, KV on the accelerator
  kOffloading,      // KV being copied to the host
  kParkedWaiting,   // offloaded, waits at a stage for its turn
  kParkedInFlight,  // a hop is out
  kOnloading,       // KV being copied to the accelerator
  kSwapped,         // KV on the host, no compute
  kDropped,         // KV thrown away, waits to be recomputed
  kFinishing,       // ended for the client; blocks in quarantine while a step, hop or copy is out
  kDone,            // holds nothing
};
inline constexpr int kSequenceStates = 12;

std::string_view state_name(SequenceState state);
bool may_change(SequenceState from, SequenceState to);

// The state of one sequence; an illegal change is a bug and stops the process.
class StateMachine {
 public:
  [[nodiscard]] SequenceState state() const { return static_cast<SequenceState>(state_); }
  void change_to(SequenceState next);
  // Whether it is new or has changed since take_changed(): for caches of its SequenceView.
  [[nodiscard]] bool changed() const { return changed_ != 0; }
  [[nodiscard]] bool take_changed() {
    const bool changed = changed_ != 0;
    changed_ = 0;
    return changed;
  }

 private:
  // One byte: a sequence's first cache line is full.
  uint8_t state_ : 7 = static_cast<uint8_t>(SequenceState::kQueued);
  uint8_t changed_ : 1 = 1;
};

}  // namespace tandem
