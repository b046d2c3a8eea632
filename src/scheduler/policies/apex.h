// APEX's scheduler (APEX 3.4, Algorithm 1): the accelerator first, and the host for sequences that
// find no blocks there. Their tokens join a step in two lanes, as NEO's do, or by overlap: each
// result joins at its stage of the next step, so that no stage is computed twice.
//
// Who is on which tier is decided as in `neo` (neo.h, rules 1 to 3, without its share of the host's
// blocks), into whose program the authors built theirs. So a prompt that finds no blocks on the
// accelerator goes straight to the host, as in NEO's program. That the accelerator comes first is
// APEX's: a later prompt of the step that finds room stays there, while `neo` sends it along, and a
// prompt that finds blocks but no place waits. Then, in a step beside residents:
//
//   1  offloaded tokens begin only if they are enough (APEX 4.2): --apex-host-rows for each request
//      of the step, or, by default, as soon as lanes or overlap give more by the predicted times;
//      lanes are then taken only if they do
//   2  lanes if inequality (6) holds (scheduler/lanes_inequality.h), with prompts in the form of
//      Algorithm 1 or, with --apex-real-window 1, over the steps' real times; tokens join as in
//      `neo` by the paper's windows, which together are the window of the inequality
//   3  else overlap, in one cohort: all of them enter stage 0 together, when the cohort before has
//      its tokens; while one is not ready the cohort is looked at again in the next step
//      (CohortBinder)
//
// `apex`       as published: no classes, no targets, whole prompts. Faults that cost time are kept:
//              the inequality compares lanes with the accelerator alone and not with overlap; a
//              sequence that is longer than a lane's window starves; where few sequences are on the
//              host --apex-host-rows keeps them there without a token as long as others decode; a
//              sequence that comes to the host waits until the cohort has its tokens
// `apex_plus`  repaired: classes, chunks, targets, room for output and tokens that lanes wait for
//              as in `neo_plus`; of overlap with or without new tokens and lanes with or without
//              new tokens, whichever gives the most output tokens beyond what its predicted time is
//              worth to the residents, with a hysteresis; a hop is 1 / (layers + 1) of a token.
//              Several cohorts at a time. Tokens enter overlap in the second lane: in a later step
//              with lanes they join it at their stage i, for layers - i dense stages. Tokens of the
//              first lane move there, or stay if the second lane's pass over the weights costs more
//              than it hides. Overlap takes only sequences whose TPOT allows (layers + 1) steps;
//              latency-sensitive ones come back first, others wait for about --patience-steps.
//              While the host is measured to take longer than the accelerator fewer tokens are
//              under way (scheduler/overlap_limiter.h), the oldest overdue one beside them, and
//              prompts are not computed for the host
//
// What differs from the paper:
//   - Steps without residents have two lanes in which no sequence sits out, as in `neo`.
//   - Where the inequality holds and no token hides in the second lane, the step is one of overlap;
//     so it is while a cohort is under way for which the host needs longer than the lanes' windows.
//   - --max-held-steps bounds for how many steps in a row a sequence sits out (neo.h).
//   - Rule 1 is a comparison of times unless --apex-host-rows is given: 8 was for the authors'
//     interpreter.
//   - How prompts for the host are computed, moves that take a step, and mended hangs: neo.h.
//
// Guarantee: as `neo` and `neo_plus`.
#pragma once

#include "scheduler/policy.h"

namespace tandem {

extern const PolicyDescriptor kApex;
extern const PolicyDescriptor kApexPlus;
extern const PolicyOption kApexHostRows;
extern const PolicyOption kApexRealWindow;
extern const PolicyOption kApexPlusForm;

}  // namespace tandem
