// Asks admission about requests, and keeps the book of all that has been accepted: what runs, what
// waits, what was accepted and has not reached the engine yet. Internal to engine/; engine thread,
// or any thread while the engine stands still.
//
// The book is gathered at the first question after the engine has gone on; an accepted request is
// then added to it. Accepted requests must reach the engine in the next advance that plans.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/current_step.h"
#include "engine/engine_input.h"
#include "engine/recorder.h"
#include "engine/sequence_table.h"
#include "kv/kv_manager.h"
#include "observe/engine_observer.h"
#include "plan/admission.h"

namespace tandem {

struct AdmissionBookOptions {
  int32_t max_running = 0;
  int32_t max_model_len = 0;
  int32_t step_tokens = 0;      // rows of a step, at most
  bool keeps_refusals = false;  // for record_refusals
};

class AdmissionBook {
 public:
  struct Answer {
    AdmissionAsk ask;
    AdmissionVerdict verdict;
  };

  // `admission` may be null: everything is accepted. The rest must outlive the book.
  AdmissionBook(const AdmissionBookOptions& options, Admission* admission,
                const SequenceTable& table, const KvManager& kv, const CurrentStep& step,
                const Clock& clock, observe::EngineObserver& observer)
      : options_(options),
        admission_(admission),
        table_(table),
        kv_(kv),
        step_(step),
        clock_(clock),
        observer_(observer) {}

  // Whether this request is accepted. If it is, the forecast is noted in it.
  Answer consider(Arrival& arrival, Nanos now);
  // The engine has gone on: the book is gathered anew when it is needed.
  void invalidate() { current_ = false; }
  // Tells `recorder` the refusals since the last call.
  void record_refusals(Recorder& recorder);

 private:
  [[nodiscard]] AdmissionAsk ask_of(const Arrival& arrival) const;
  [[nodiscard]] AdmissionView view(Nanos now);
  void gather();
  void gather_waiting();
  void gather_admitted(const LiveSequence& sequence);
  void gather_best_effort(const LiveSequence& sequence, bool decodes);
  [[nodiscard]] int32_t tokens_in_step(const LiveSequence& sequence) const;
  void put_in_line(const AdmittedPrompt& prompt);

  const AdmissionBookOptions options_;
  Admission* const admission_;
  const SequenceTable& table_;
  const KvManager& kv_;
  const CurrentStep& step_;
  const Clock& clock_;
  observe::EngineObserver& observer_;
  bool current_ = false;
  AdmissionView view_;  // without its spans
  std::vector<AdmittedDecode> decodes_;
  std::vector<AdmittedPrompt> prompts_;
  std::vector<std::pair<SequenceId, int32_t>> chunks_;  // of prompts in the step in flight
  std::vector<Answer> refusals_;
};

}  // namespace tandem
