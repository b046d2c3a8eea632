// Ends sequences: the change of state, the last event, the record of how the request was served.
// Their blocks are freed as soon as nothing of them is in flight. Internal to engine/; engine
// thread only.
#pragma once

#include <string>

#include "base/clock.h"
#include "engine/event_outbox.h"
#include "engine/sequence_table.h"
#include "engine/tier_mover.h"
#include "observe/engine_observer.h"
#include "plan/admission.h"

namespace tandem {

class SequenceFinisher {
 public:
  // All must outlive it; `admission` (null: none) learns the lengths of answers.
  SequenceFinisher(SequenceTable& table, TierMover& mover, EventOutbox& outbox,
                   observe::EngineObserver& observer, Admission* admission)
      : table_(table), mover_(mover), outbox_(outbox), observer_(observer), admission_(admission) {}

  // Does nothing if the sequence has ended before. `error` is for kError.
  void finish(LiveSequence& sequence, FinishReason reason, Nanos now,
              const std::string& error = {});

 private:
  SequenceTable& table_;
  TierMover& mover_;
  EventOutbox& outbox_;
  observe::EngineObserver& observer_;
  Admission* const admission_;
};

}  // namespace tandem
