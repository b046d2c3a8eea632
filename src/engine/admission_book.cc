#include "engine/admission_book.h"

#include <algorithm>

#include "base/check.h"
#include "engine/admitted_prompt.h"
#include "engine/prefetch.h"

namespace tandem {
namespace {

bool level_before(int32_t level, const AdmittedPrompt& prompt) { return level < prompt.level; }

}  // namespace

AdmissionBook::Answer AdmissionBook::consider(Arrival& arrival, Nanos now) {
  if (admission_ == nullptr || arrival.request.service_class != kLs) {
    return {};
  }
  CHECK(table_.waiting().order().classes_first(),
        "an admission needs a policy whose queue has classes");
  const AdmissionAsk ask = ask_of(arrival);
  const AdmissionVerdict verdict = admission_->decide(view(now), ask);
  observer_.on_admission({.answer = answer_name(verdict.answer),
                          .reason = reason_name(verdict.reason),
                          .took = clock_.now() - now,
                          .forecast = verdict.ttft});
  if (verdict.answer == AdmissionAnswer::kRefuse) {
    if (options_.keeps_refusals) {
      refusals_.push_back({ask, verdict});
    }
    return {ask, verdict};
  }
  arrival.believed_cached = ask.cached_tokens;
  if (verdict.answer == AdmissionAnswer::kAccept) {
    arrival.forecast_ttft = verdict.ttft;
  }
  view_.least_tpot = std::min(view_.least_tpot, ask.tpot);
  put_in_line(admitted_prompt(ask));
  return {ask, verdict};
}

void AdmissionBook::record_refusals(Recorder& recorder) {
  for (const Answer& refused : refusals_) {
    recorder.refusal(step_.number, refused.ask, refused.verdict);
  }
  refusals_.clear();
}

AdmissionAsk AdmissionBook::ask_of(const Arrival& arrival) const {
  const Request& request = arrival.request;
  AdmissionAsk ask;
  ask.service_class = request.service_class;
  ask.level = request.level;
  ask.arrived = arrival.arrived;
  ask.prompt_tokens = static_cast<int32_t>(request.prompt.size());
  ask.ttft = request.slo.ttft ? request.slo.ttft->target(ask.prompt_tokens) : Nanos::max();
  ask.tpot = request.slo.tpot.value_or(Nanos::max());
  if (request.sampling.prompt_logprobs < 0) {
    ask.cached_tokens = kv_.match(arrival.prompt_hashes, ask.prompt_tokens).tokens;
  }
  ask.choices = request.n;
  ask.max_tokens =
      std::min(request.sampling.max_tokens, options_.max_model_len - ask.prompt_tokens);
  return ask;
}

AdmissionView AdmissionBook::view(Nanos now) {
  if (!current_) {
    gather();
  }
  AdmissionView view = view_;
  view.now = now;
  view.decodes = decodes_;
  view.prompts = prompts_;
  return view;
}

void AdmissionBook::gather() {
  const int64_t version = view_.version + 1;
  view_ = {};
  view_.version = version;
  decodes_.clear();
  prompts_.clear();
  view_.places = options_.max_running;
  view_.free_places = options_.max_running;
  prefetch_sequences(table_.running(), [](const LiveSequence* sequence) { return sequence; });
  chunks_.clear();
  for (const StepPart& part : step_.parts) {
    if (step_.in_flight && !part.sequence->decodes()) {
      chunks_.emplace_back(part.sequence->id, part.tokens);
    }
  }
  std::ranges::sort(chunks_);
  for (const LiveSequence* sequence : table_.running()) {
    gather_admitted(*sequence);
  }
  for (const LiveSequence* sequence : table_.offloaded()) {
    if (sequence->state.state() == SequenceState::kFinishing) {
      continue;
    }
    if (sequence->state.state() == SequenceState::kOnloading) {
      --view_.free_places;  // it takes one when it is here
    }
    if (sequence->service_class == kLs) {
      gather_admitted(*sequence);
    } else {
      ++view_.offloaded;
    }
  }
  std::ranges::stable_sort(prompts_, {}, &AdmittedPrompt::level);
  view_.running_prompts = std::ssize(prompts_);
  gather_waiting();
  view_.step_tokens = options_.step_tokens;
  view_.total_blocks = kv_.total_blocks();
  view_.free_blocks = kv_.free_blocks();
  view_.block_tokens = kv_.block_tokens();
  if (step_.in_flight && !step_.input.slices.empty()) {
    view_.step_began = step_.launched;
  }
  current_ = true;
}

void AdmissionBook::gather_waiting() {
  for (const LiveSequence* sequence : table_.waiting()) {
    if (sequence->service_class != kLs) {
      ++view_.best_effort_prompts;
      view_.best_effort_prompt_tokens =
          std::max<int64_t>(view_.best_effort_prompt_tokens, sequence->known_tokens());
      return;  // class first: the others are best effort too
    }
    view_.least_tpot = std::min(view_.least_tpot, sequence->tpot_target);
    prompts_.push_back(admitted_prompt(*sequence));
  }
}

// Latency-sensitive decodes are in every step; whether a best-effort one is hardly matters.
int32_t AdmissionBook::tokens_in_step(const LiveSequence& sequence) const {
  if (sequence.decodes()) {
    return step_.in_flight && sequence.service_class == kLs ? 1 : 0;
  }
  const auto chunk =
      std::ranges::lower_bound(chunks_, sequence.id, {}, &std::pair<SequenceId, int32_t>::first);
  return chunk != chunks_.end() && chunk->first == sequence.id ? chunk->second : 0;
}

// Adds an admitted sequence as it will be when the step in flight has finished.
void AdmissionBook::gather_admitted(const LiveSequence& sequence) {
  const int32_t in_step = tokens_in_step(sequence);
  const int32_t computed = sequence.computed_tokens + in_step;
  const int32_t pending = sequence.known_tokens() - computed;
  const int32_t choices = sequence.choices;
  view_.free_places -= sequence.kv.tier() == Tier::kAccelerator ? choices : 0;
  const bool samples = in_step > 0 && pending == 0;
  const bool decodes = samples || (pending == 1 && sequence.output_tokens() > 0);
  if (sequence.service_class != kLs) {
    gather_best_effort(sequence, decodes);
    return;
  }
  view_.least_tpot = std::min(view_.least_tpot, sequence.tpot_target);
  const int32_t sampled = samples ? 1 : 0;
  if (!decodes) {
    AdmittedPrompt prompt = admitted_prompt(sequence);
    prompt.rest.computed_tokens = computed;
    prompt.rest.pending_tokens = pending;
    prompt.held_blocks = sequence.kv.blocks();
    prompts_.push_back(prompt);
    return;
  }
  if (sequence.output_tokens() + sampled >= sequence.max_tokens) {
    return;  // it ends with this step
  }
  for (int32_t choice = 0; choice < choices; ++choice) {
    decodes_.push_back({.known_tokens = sequence.known_tokens() + sampled,
                        .output_tokens = sequence.output_tokens() + sampled,
                        .max_tokens = sequence.max_tokens,
                        .held_blocks = choice == 0 ? sequence.kv.blocks() : 0});
  }
}

void AdmissionBook::gather_best_effort(const LiveSequence& sequence, bool decodes) {
  if (decodes) {
    view_.best_effort_decodes += sequence.choices;
    view_.best_effort_context += int64_t{sequence.known_tokens()} * sequence.choices;
    return;
  }
  ++view_.best_effort_prompts;
  view_.best_effort_prompt_tokens =
      std::max<int64_t>(view_.best_effort_prompt_tokens, sequence.known_tokens());
}

// Behind the waiting prompts of its level and of those that go before it.
void AdmissionBook::put_in_line(const AdmittedPrompt& prompt) {
  const auto first_waiting = prompts_.begin() + view_.running_prompts;
  const auto place = std::upper_bound(first_waiting, prompts_.end(), prompt.level, level_before);
  if (place != prompts_.end()) {
    ++view_.version;  // others have moved
  }
  prompts_.insert(place, prompt);
}

}  // namespace tandem
