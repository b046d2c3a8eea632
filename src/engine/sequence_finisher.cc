#include "engine/sequence_finisher.h"

#include "engine/service_record.h"

namespace tandem {

void SequenceFinisher::finish(LiveSequence& sequence, FinishReason reason, Nanos now,
                              const std::string& error) {
  if (sequence.state.state() == SequenceState::kFinishing) {
    return;
  }
  table_.change(sequence, SequenceState::kFinishing);
  mover_.release(sequence);
  outbox_.add_finish(sequence, sequence.choice, reason, error);
  // Choices that were not forked off yet end with it.
  for (size_t i = 0; i < sequence.forks.size(); ++i) {
    outbox_.add_finish(sequence, static_cast<int32_t>(i) + 1, reason, error);
  }
  observer_.on_request(record_of_end(sequence, reason, now));
  if (admission_ != nullptr && sequence.service_class == ServiceClass::kLatencySensitive &&
      (reason == FinishReason::kStop || reason == FinishReason::kLength)) {
    admission_->ended(sequence.output_tokens());
  }
}

}  // namespace tandem
