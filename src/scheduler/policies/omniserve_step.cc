#include "scheduler/policies/omniserve_step.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "latency/questions.h"
#include "scheduler/ordering.h"

namespace tandem::omniserve {
namespace {

// A best-effort decode for which there was no time in so many steps in a row goes to the host. Not
// at once: the chunks of a single prompt fill a few steps to their limit.
constexpr int64_t kOffloadAfterSteps = 4;
// Share of the time that a decode more must leave before an offloaded one comes back.
constexpr int64_t kOnloadMarginPercent = 20;

Nanos time_with_decode(const Setting& setting, const StepDraft& draft, int64_t context) {
  latency::StepShape tried = draft.shape();
  tried.add_decode(context);
  latency::add_visits(tried, int64_t{setting.model.layers()} + 1, setting.ready);
  return setting.model.step_time(tried);
}

// The first latency-sensitive prompt of a step gets a tile whatever the time. Those behind it do
// not make it late: steps may have become longer than when it was promised its first token.
int32_t latency_sensitive_chunk(const Setting& setting, const StepDraft& draft,
                                const StepTime& time, const FirstTokens& first_tokens,
                                const SequenceView& prompt) {
  const Nanos now = setting.view.now;
  const Nanos due = first_tokens.first_due_in_step(now);
  const Nanos limit = std::min(time.first_tokens_at_risk ? time.pace : time.limit,
                               due == kNoLimit ? due : before_overdue_decodes(time, due - now));
  const ChunkRules rules{.step_tokens = max_step_tokens(setting, time),
                         .kept_rows = setting.claims.rows()};
  return rules.chunk(setting, draft, prompt, limit,
                     draft.shape().prefill_rows == 0 ? kTileTokens : 0);
}

// `tokens` of this prompt, perhaps none, are in the step.
void note(const SequenceView& prompt, int32_t tokens, Prompts& prompts) {
  prompts.first_tokens.note(prompt, tokens);
  for (int32_t i = 0; tokens == prompt.pending_tokens() && i < prompt.choices; ++i) {
    prompts.decodes.add_decode(prompt.known_tokens + 1);
  }
}

void prefill(const Setting& setting, StepDraft& draft, const StepTime& time, Prompts& prompts) {
  for (const PromptPlace& place : running_prompts(setting.view, draft.planner(), kLs)) {
    const SequenceView& prompt = *place.sequence;
    const int32_t chunk =
        prompts.first_tokens.any_ahead()
            ? 0
            : latency_sensitive_chunk(setting, draft, time, prompts.first_tokens, prompt);
    const int32_t tokens = draft.add_chunk(place.index, chunk) ? chunk : 0;
    note(prompt, tokens, prompts);
    prompts.line.count_prompt(prompt, tokens);
  }
}

void admit(const Setting& setting, StepDraft& draft, const StepTime& time, Prompts& prompts) {
  bool goes_on = !prompts.first_tokens.any_ahead();
  size_t promised = prompts.line.promised();
  for (const SequenceView& shown : setting.view.waiting) {
    if (shown.service_class != kLs) {
      break;
    }
    SequenceView waiting = shown;
    waiting.promised = promised > 0;
    promised -= promised > 0 ? 1 : 0;
    int32_t tokens = 0;
    if (goes_on && setting.claims.others_are_left_room(draft.planner(), waiting)) {
      tokens = latency_sensitive_chunk(setting, draft, time, prompts.first_tokens, waiting);
      tokens = tokens > 0 && draft.admit(waiting, tokens) ? tokens : 0;
    }
    goes_on = tokens == waiting.pending_tokens();  // no skipping ahead
    if (tokens > 0) {
      prompts.line.count_begun(waiting, tokens);
    }
    note(waiting, tokens, prompts);
  }
}

// What a best-effort prompt gets whatever the time. Where nothing else runs something must.
int32_t least_chunk(const Setting& setting, const StepDraft& draft, const SequenceView& prompt,
                    const BestEffortPrompts& so_far) {
  if (draft.shape().rows() == 0) {
    return kTileTokens;
  }
  return setting.claims.prompt_is_overdue && !so_far.any_began
             ? overdue_chunk(setting.model, prompt.computed_tokens)
             : 0;
}

// Best-effort decodes come after the prompts, but their next blocks are theirs: prompts that took
// them would send older sequences away.
int64_t blocks_of_decodes(const Setting& setting, const ClassedPlanner& planner) {
  int64_t blocks = 0;
  for (size_t i = 0; i < setting.view.running.size(); ++i) {
    blocks += planner.may_decode(i, kBe) ? planner.blocks_to_grow(i, 1) : 0;
  }
  return blocks;
}

// The step in which all sequences decode that are to stay on the accelerator. While the host is not
// the limit, none has to.
class DecodesThatStay {
 public:
  DecodesThatStay(const Setting& setting, const Leave& leave)
      : model_(setting.model),
        limit_(leave.host_limits ? leave.time.limit : kNoLimit),
        shape_(leave.decodes) {
    if (limit_ == kNoLimit) {
      return;
    }
    for (const SequenceView& sequence : setting.view.running) {
      if (sequence.service_class == kBe) {
        add(sequence);
      }
    }
  }
  void add(const SequenceView& sequence) { add_decodes(sequence, shape_); }
  [[nodiscard]] bool has_time_for(const SequenceView& sequence) const {
    if (limit_ == kNoLimit) {
      return true;
    }
    latency::StepShape tried = shape_;
    add_decodes(sequence, tried);
    return model_.step_time(tried) <= limit_;
  }

 private:
  static void add_decodes(const SequenceView& sequence, latency::StepShape& shape) {
    for (int32_t i = 0; i < sequence.choices; ++i) {
      shape.add_decode(sequence.known_tokens);
    }
  }

  const latency::StepTimeModel& model_;
  const Nanos limit_;
  latency::StepShape shape_;
};

ChunkRules best_effort_chunks(const Setting& setting, const Leave& leave) {
  return {.step_tokens = leave.step_tokens,
          .kept_rows = setting.claims.overdue_decodes,
          .visits = setting.ready};
}

BestEffortPrompts prefill(const Setting& setting, StepDraft& draft, const Leave& leave,
                          int64_t decode_blocks) {
  BestEffortPrompts done;
  const ClassedPlanner& planner = draft.planner();
  for (size_t i = 0; i < setting.view.running.size(); ++i) {
    if (!planner.may_prefill(i, kBe)) {
      continue;
    }
    const SequenceView& prompt = setting.view.running[i];
    const int32_t least = least_chunk(setting, draft, prompt, done);
    const int32_t tokens = best_effort_chunks(setting, leave)
                               .chunk(setting, draft, prompt, leave.time.unclaimed, least);
    const int64_t growth = planner.blocks_to_grow(i, std::max(tokens, 1));
    const bool has_blocks =
        planner.builder().blocks_left() - decode_blocks >= growth || decode_blocks == 0;
    const bool leaves_line = least > 0 || leave.line.is_left_by(planner, growth);
    if (tokens > 0 && has_blocks && leaves_line && draft.add_chunk(i, tokens)) {
      done.any_began = true;
      if (tokens == prompt.pending_tokens()) {
        continue;
      }
    }
    done.unfinished = true;
    break;  // first come, first served
  }
  return done;
}

BestEffortPrompts admit(const Setting& setting, StepDraft& draft, const Leave& leave,
                        int64_t decode_blocks, BestEffortPrompts done) {
  const BestEffortClaims& claims = setting.claims;
  DecodesThatStay stay(setting, leave);
  for (const SequenceView& waiting : setting.view.waiting) {
    if (waiting.service_class != kBe) {
      continue;
    }
    if (done.unfinished) {
      break;  // a prompt begins when the one before it is done
    }
    const PlanBuilder& left = draft.builder();
    const bool first =
        &waiting == claims.head && (claims.prompt_is_overdue || draft.shape().rows() == 0);
    if (!first && !stay.has_time_for(waiting)) {
      break;
    }
    const int64_t kept_blocks =
        first ? 0 : kept_beside_best_effort(draft.planner(), setting.options.offload_below);
    const bool crowded =
        !setting.view.running.empty() &&
        (left.sequences_left() - waiting.choices <
             std::max(first ? 0 : leave.kept_places, leave.line.places()) ||
         left.blocks_left() - draft.planner().blocks_to_begin(waiting) - decode_blocks <
             std::max(kept_blocks, leave.line.blocks()));
    const int32_t least = first ? least_chunk(setting, draft, waiting, done) : 0;
    const int32_t tokens = best_effort_chunks(setting, leave)
                               .chunk(setting, draft, waiting, leave.time.unclaimed, least);
    if (tokens < 1) {
      break;
    }
    if (crowded) {
      draft.planner().note_refused();
      break;
    }
    if (!draft.admit(waiting, tokens)) {
      break;
    }
    done.any_began = true;
    if (tokens < waiting.pending_tokens()) {
      break;
    }
    stay.add(waiting);
  }
  return done;
}

}  // namespace

Decodes decode_latency_sensitive(const Setting& setting, StepDraft& draft) {
  Decodes done{.decodes = {}, .line = LineAhead(setting.view)};
  for (size_t i = 0; i < setting.view.running.size(); ++i) {
    const SequenceView& sequence = setting.view.running[i];
    if (draft.planner().may_decode(i, kLs) && draft.add_decode(i)) {
      done.decodes.add_decode(sequence.known_tokens + 1);
      done.line.count_decode(sequence);
    }
  }
  return done;
}

Prompts compute_latency_sensitive(const Setting& setting, StepDraft& draft, const StepTime& time,
                                  Decodes before) {
  Prompts prompts{.decodes = before.decodes, .first_tokens = {}, .line = std::move(before.line)};
  prefill(setting, draft, time, prompts);
  admit(setting, draft, time, prompts);
  for (const AdmittedPrompt& later : setting.view.later) {
    prompts.first_tokens.note(later);
  }
  return prompts;
}

MadeRoom make_room_ahead(const Setting& setting, StepDraft& draft, const StepTime& time,
                         const Prompts& prompts) {
  ClassedPlanner& planner = draft.planner();
  const int32_t rows = std::min(max_step_tokens(setting, time),
                                setting.view.budget.tokens - setting.visitors.tokens);
  MadeRoom made{.room = prompts.line.needed(planner, setting.claims, rows)};
  if (time.pace < kNoLimit && !planner.has_room_ahead(made.room)) {
    const latency::ChunkQuestion rest{.prompt = {.pending_tokens = rows, .choices = 0},
                                      .max_tokens = rows,
                                      .least_tokens = kTileTokens};
    made.room = prompts.line.needed(
        planner, setting.claims,
        latency::largest_chunk(setting.model, prompts.decodes, rest, time.pace));
  }
  planner.make_room_ahead(made.room);
  if (!planner.has_room_ahead(made.room)) {
    made.lost = time.pace < kNoLimit ? time.pace : setting.model.step_time(prompts.decodes);
  }
  return made;
}

BestEffortPrompts compute_best_effort(const Setting& setting, StepDraft& draft,
                                      const Leave& leave) {
  const int64_t decode_blocks = blocks_of_decodes(setting, draft.planner());
  return admit(setting, draft, leave, decode_blocks, prefill(setting, draft, leave, decode_blocks));
}

bool decode_best_effort(const Setting& setting, StepDraft& draft, const Leave& leave,
                        const Patience& patience) {
  const SystemView& view = setting.view;
  const Nanos limit = leave.time.unclaimed;
  int32_t kept_rows = setting.claims.overdue_decodes;
  bool short_of_time = false;
  for (size_t i = 0; i < view.running.size(); ++i) {
    if (!draft.planner().may_decode(i, kBe)) {
      continue;
    }
    const SequenceView& sequence = view.running[i];
    const bool in_time =
        limit == kNoLimit || time_with_decode(setting, draft, sequence.known_tokens) <= limit;
    const bool is_overdue = patience.decode_is_overdue(sequence.id, view.step);
    kept_rows -= is_overdue ? 1 : 0;
    const int32_t visitors = setting.visitors.logits;
    const bool leaves_others = draft.builder().logit_rows_left() > visitors &&
                               draft.builder().tokens_left() - kept_rows > visitors;
    if (is_overdue || draft.shape().rows() == 0 ||
        (in_time && leaves_others && leave.line.is_left_by_decode(draft.planner(), i))) {
      draft.add_decode(i);
    } else if (!leave.host_limits &&
               patience.decode_passed_over(sequence.id, view.step) >= kOffloadAfterSteps) {
      draft.planner().offload(i, ClassedPlanner::Need::kWish);
    }
    short_of_time = short_of_time || !in_time;
  }
  return short_of_time;
}

bool has_time_to_bring_back(const Setting& setting, const StepDraft& draft,
                            const BestEffortTime& time) {
  const auto next = std::ranges::find(setting.view.offloaded, kBe, &SequenceView::service_class);
  return next != setting.view.offloaded.end() &&
         (time.limit == kNoLimit || time_with_decode(setting, draft, next->known_tokens) <=
                                        time.limit / 100 * (100 - kOnloadMarginPercent));
}

void bring_back_best_effort(const Setting& setting, StepDraft& draft, const LineAhead& line) {
  ClassedPlanner& planner = draft.planner();
  const int32_t onload_above = setting.options.onload_above;
  if (planner.refused() || planner.builder().preempts() || onload_above >= 100) {
    return;
  }
  const int64_t kept = planner.share_of_blocks(onload_above) + planner.reserved_blocks();
  const int32_t most = planner.builder().sequences_left() > line.places() ? 1 : 0;
  planner.bring_back(kBe, std::max(kept, line.blocks()), most);
}

}  // namespace tandem::omniserve
