#include "scheduler/room_ahead.h"

namespace tandem {

RoomAhead LineAhead::needed(const ClassedPlanner& planner, const BestEffortClaims& claims,
                            int32_t rows) const {
  constexpr int32_t kBlocksOfATile = 2;
  RoomAhead room{
      .places = 0,
      .blocks = growth_ + claims.overdue_decodes + (claims.prompt_is_overdue ? kBlocksOfATile : 0)};
  int64_t tokens = int64_t{rows} - rest_;
  for (size_t i = begun_; i < promised_ && tokens > 0; ++i) {
    const SequenceView& waiting = view_.waiting[i];
    if (waiting.service_class != ServiceClass::kLatencySensitive) {
      break;
    }
    tokens -= waiting.pending_tokens();
    room.places += waiting.choices;
    room.blocks += planner.blocks_to_begin(waiting);
  }
  if (promised_ < view_.waiting.size()) {
    return room;
  }
  // What the cache holds of those that are not shown as waiting may be gone by then.
  for (const AdmittedPrompt& prompt : view_.later.first(later_)) {
    if (tokens <= 0) {
      break;
    }
    tokens -= prompt.rest.pending_tokens;
    room.places += prompt.rest.choices;
    room.blocks += planner.blocks_for(int64_t{prompt.rest.known_tokens()} + 1);
  }
  return room;
}

}  // namespace tandem
