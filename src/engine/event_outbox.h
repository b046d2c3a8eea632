// Collects the events of one advance and delivers them to the sinks of their requests, each sink's
// in one call. Internal to engine/; engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/live_sequence.h"
#include "request/request.h"

namespace tandem {

class EventOutbox {
 public:
  // `hops_per_token`: for service reports.
  explicit EventOutbox(int32_t hops_per_token) : hops_per_token_(hops_per_token) {}

  // A new event of this sequence's request, to be filled in at once. Null: the request has no sink.
  TokenEvent* add(const LiveSequence& sequence, TokenEvent::Kind kind, int32_t choice);
  // The end of one choice: the sequence's own, or one that was never forked off it.
  void add_finish(const LiveSequence& sequence, int32_t choice, FinishReason reason,
                  std::string error);
  void deliver();

 private:
  std::vector<TokenEvent>& events_of(const LiveSequence& sequence);

  const int32_t hops_per_token_;
  std::vector<std::pair<std::shared_ptr<TokenSink>, std::vector<TokenEvent>>> events_;
  size_t usual_events_ = 0;  // of the first sink in the last delivery
};

}  // namespace tandem
