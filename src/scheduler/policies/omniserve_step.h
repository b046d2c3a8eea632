// The parts of a step of omniserve, in their order. Each function puts its part into the draft and
// returns what the parts after it must know. Internal to the policy; plain functions, any thread.
#pragma once

#include <cstdint>

#include "latency/step_shape.h"
#include "scheduler/first_tokens.h"
#include "scheduler/policies/omniserve_time.h"
#include "scheduler/room_ahead.h"
#include "scheduler/step_draft.h"

namespace tandem::omniserve {

// ---------------------------------------------------------------- latency sensitive

// `decodes`: of the next step. `line`: the prompts that were promised their first token.
struct Decodes {
  latency::StepShape decodes;
  LineAhead line;
};
Decodes decode_latency_sensitive(const Setting& setting, StepDraft& draft);

struct Prompts {
  latency::StepShape decodes;  // of the next step: also of prompts that end in this one
  FirstTokens first_tokens;    // that are waited for, those of later prompts included
  LineAhead line;
};
// Prompts that have begun, then new ones.
Prompts compute_latency_sensitive(const Setting& setting, StepDraft& draft, const StepTime& time,
                                  Decodes before);

// Makes room for the promised line a step ahead.
struct MadeRoom {
  RoomAhead room;
  // A step without prompts, which the line loses because it does not find all the room it needs.
  Nanos lost{0};
};
MadeRoom make_room_ahead(const Setting& setting, StepDraft& draft, const StepTime& time,
                         const Prompts& prompts);

// ---------------------------------------------------------------- best effort

// What latency-sensitive sequences leave best effort.
struct Leave {
  BestEffortTime time;
  int32_t step_tokens = 0;     // of the step, at most
  int32_t kept_places = 0;     // for latency-sensitive requests that may come
  latency::StepShape decodes;  // latency-sensitive ones of the next step
  bool host_limits = false;    // best effort is to stay on the accelerator
  const LineAhead& line;
};

struct BestEffortPrompts {
  bool any_began = false;   // some prompt got tokens
  bool unfinished = false;  // one goes on in a later step, and the others wait for it
};
BestEffortPrompts compute_best_effort(const Setting& setting, StepDraft& draft, const Leave& leave);

// True: there was no time for some decode.
bool decode_best_effort(const Setting& setting, StepDraft& draft, const Leave& leave,
                        const Patience& patience);

// Whether a best-effort decode more would leave time, where an offloaded one could come back.
bool has_time_to_bring_back(const Setting& setting, const StepDraft& draft,
                            const BestEffortTime& time);
// One offloaded best-effort sequence comes back, if blocks and places are left over.
void bring_back_best_effort(const Setting& setting, StepDraft& draft, const LineAhead& line);

}  // namespace tandem::omniserve
