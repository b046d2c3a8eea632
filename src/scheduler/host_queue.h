// The order in which offloaded sequences wait for the host and for their return: NEO's CPU decoding
// queue (NEO 3.2). A sequence that makes room on the accelerator goes to the front, before those
// that were offloaded earlier; any other, such as a prompt that was computed for the host, goes to
// the back.
//
// One owner, which tells it after each planning what makes room.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "plan/views.h"

namespace tandem {

class HostQueue {
 public:
  // The sequences in the order of the queue. Sequences that are not in the queue yet join its back
  // in the order that they have here; it forgets those that are not named. About 20 us for 400.
  void sort(std::span<const SequenceView> offloaded, std::vector<SequenceView>& sorted);

  // In front of all others, the last one first: as one after the other leaves the accelerator.
  void push_front(std::span<const SequenceId> ids);

 private:
  std::vector<SequenceId> order_;
  struct Place {
    SequenceId id{};
    size_t index = 0;  // in `offloaded`
  };
  std::vector<Place> places_;  // by id; reused
  std::vector<bool> queued_;   // by place; reused
};

}  // namespace tandem
