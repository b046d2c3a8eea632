// The part of Engine that shows admission what was let in, and asks it.
#include <algorithm>

#include "base/check.h"
#include "engine/engine.h"
#include "engine/prefetch.h"

namespace tandem {
namespace {

constexpr ServiceClass kLs = ServiceClass::kLatencySensitive;

// Policies are shown so many latency-sensitive sequences beside those that might begin; who stands
// further back is not reckoned with when best effort gets its part of a step.
constexpr size_t kLaterShown = 256;

bool level_before(int32_t level, const AdmittedPrompt& prompt) { return level < prompt.level; }

}  // namespace

AdmissionAsk Engine::ask_of(const Arrival& arrival) const {
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
  ask.max_tokens = std::min(request.sampling.max_tokens, config_.max_model_len - ask.prompt_tokens);
  return ask;
}

AdmittedPrompt Engine::prompt_of(const AdmissionAsk& ask) {
  return {.level = ask.level,
          .arrived = ask.arrived,
          .first_token_due = due_at(ask.arrived, ask.ttft),
          .computed_tokens = ask.cached_tokens,
          .pending_tokens = ask.prompt_tokens - ask.cached_tokens,
          .choices = ask.choices,
          .output_tokens = 0,
          .max_tokens = ask.max_tokens,
          .held_blocks = 0};
}

AdmittedPrompt Engine::prompt_of(const LiveSequence& waiting) {
  const int32_t cached =
      waiting.output_tokens() == 0 ? waiting.owner->believed_cached : waiting.computed_tokens;
  return {.level = waiting.level,
          .arrived = waiting.arrived,
          .first_token_due = waiting.output_tokens() == 0 ? waiting.first_token_due : Nanos::max(),
          .computed_tokens = cached,
          .pending_tokens = waiting.known_tokens() - cached,
          .choices = waiting.choices,
          .output_tokens = waiting.output_tokens(),
          .max_tokens = waiting.max_tokens,
          .held_blocks = 0};
}

// Latency-sensitive decodes are in every step; whether a best-effort one is hardly matters.
int32_t Engine::tokens_in_step(const LiveSequence& sequence) const {
  if (sequence.decodes()) {
    return in_flight_ && sequence.service_class == kLs ? 1 : 0;
  }
  const auto chunk = std::ranges::lower_bound(admitted_.chunks, sequence.id, {},
                                              &std::pair<SequenceId, int32_t>::first);
  return chunk != admitted_.chunks.end() && chunk->first == sequence.id ? chunk->second : 0;
}

// One that is admitted, as it will be when the step in flight is done.
void Engine::gather(const LiveSequence& sequence) {
  AdmissionView& view = admitted_.view;
  const int32_t in_step = tokens_in_step(sequence);
  const int32_t computed = sequence.computed_tokens + in_step;
  const int32_t pending = sequence.known_tokens() - computed;
  const int32_t choices = sequence.choices;
  view.free_places -= sequence.kv.tier() == Tier::kAccelerator ? choices : 0;
  const bool samples = in_step > 0 && pending == 0;
  const bool decodes = samples || (pending == 1 && sequence.output_tokens() > 0);
  if (sequence.service_class != kLs) {
    view.best_effort_prompts += decodes ? 0 : 1;
    if (!decodes) {
      view.best_effort_prompt_tokens =
          std::max<int64_t>(view.best_effort_prompt_tokens, sequence.known_tokens());
    }
    view.best_effort_decodes += decodes ? choices : 0;
    view.best_effort_context += decodes ? int64_t{sequence.known_tokens()} * choices : 0;
    return;
  }
  view.least_tpot = std::min(view.least_tpot, sequence.tpot_target);
  const int32_t sampled = samples ? 1 : 0;
  if (!decodes) {
    AdmittedPrompt prompt = prompt_of(sequence);
    prompt.computed_tokens = computed;
    prompt.pending_tokens = pending;
    prompt.held_blocks = sequence.kv.blocks();
    admitted_.prompts.push_back(prompt);
    return;
  }
  if (sequence.output_tokens() + sampled >= sequence.max_tokens) {
    return;  // it ends with this step
  }
  for (int32_t choice = 0; choice < choices; ++choice) {
    admitted_.decodes.push_back({.known_tokens = sequence.known_tokens() + sampled,
                                 .output_tokens = sequence.output_tokens() + sampled,
                                 .max_tokens = sequence.max_tokens,
                                 .held_blocks = choice == 0 ? sequence.kv.blocks() : 0});
  }
}

// Behind those of its level and above that wait.
void Engine::put_in_line(const AdmittedPrompt& prompt) {
  const auto first_waiting = admitted_.prompts.begin() + admitted_.view.running_prompts;
  const auto place =
      std::upper_bound(first_waiting, admitted_.prompts.end(), prompt.level, level_before);
  if (place != admitted_.prompts.end()) {
    ++admitted_.view.version;  // others have moved
  }
  admitted_.prompts.insert(place, prompt);
}

void Engine::gather_admitted() {
  const int64_t version = admitted_.view.version + 1;
  admitted_.view = {};
  admitted_.view.version = version;
  admitted_.decodes.clear();
  admitted_.prompts.clear();
  AdmissionView& view = admitted_.view;
  view.places = config_.max_running;
  view.free_places = config_.max_running;
  prefetch_sequences(running_, [](const LiveSequence* sequence) { return sequence; });
  admitted_.chunks.clear();
  for (const StepPart& part : step_parts_) {
    if (in_flight_ && !part.sequence->decodes()) {
      admitted_.chunks.emplace_back(part.sequence->id, part.tokens);
    }
  }
  std::ranges::sort(admitted_.chunks);
  for (const LiveSequence* sequence : running_) {
    gather(*sequence);
  }
  for (const LiveSequence* sequence : offloaded_) {
    if (sequence->state.state() != SequenceState::kFinishing) {
      view.offloaded += sequence->service_class == kLs ? 0 : 1;
      if (sequence->service_class == kLs) {
        gather(*sequence);
      }
    }
  }
  std::ranges::stable_sort(admitted_.prompts, {}, &AdmittedPrompt::level);
  view.running_prompts = std::ssize(admitted_.prompts);
  for (const LiveSequence* sequence : waiting_) {
    if (sequence->service_class != kLs) {
      ++view.best_effort_prompts;
      view.best_effort_prompt_tokens =
          std::max<int64_t>(view.best_effort_prompt_tokens, sequence->known_tokens());
      break;  // class first: the others are best effort too
    }
    view.least_tpot = std::min(view.least_tpot, sequence->tpot_target);
    admitted_.prompts.push_back(prompt_of(*sequence));
  }
  for (const EngineInput& input : inbox_) {
    const auto* arrival = std::get_if<Arrival>(&input);
    if (arrival != nullptr && arrival->request.service_class == kLs) {
      const AdmissionAsk ask = ask_of(*arrival);
      view.least_tpot = std::min(view.least_tpot, ask.tpot);
      put_in_line(prompt_of(ask));
    }
  }
  view.step_tokens = executor_.limits().max_batched_tokens;
  view.total_blocks = kv_.total_blocks();
  view.free_blocks = kv_.free_blocks();
  view.block_tokens = kv_.block_tokens();
  if (in_flight_ && !input_.slices.empty()) {
    view.step_began = launched_;
  }
  admitted_.current = true;
}

AdmissionView Engine::admission_view(Nanos now) {
  if (!admitted_.current) {
    gather_admitted();
  }
  AdmissionView view = admitted_.view;
  view.now = now;
  view.decodes = admitted_.decodes;
  view.prompts = admitted_.prompts;
  return view;
}

Engine::Considered Engine::consider(Arrival& arrival, Nanos now) {
  if (admission_ == nullptr || arrival.request.service_class != kLs) {
    return {};
  }
  CHECK(policy_.queue_order() == QueueOrder::kClassFirst,
        "policy {} has an admission but no classes", policy_.name());
  const AdmissionAsk ask = ask_of(arrival);
  const AdmissionVerdict verdict = admission_->decide(admission_view(now), ask);
  if (observer_ != nullptr) {
    observer_->on_admission({.answer = answer_name(verdict.answer),
                             .reason = reason_name(verdict.reason),
                             .took = clock_.now() - now});
  }
  if (verdict.answer == AdmissionAnswer::kRefuse) {
    if (recorder_ != nullptr) {
      post(EngineRefusal{ask, verdict});
    }
    return {ask, verdict};
  }
  arrival.believed_cached = ask.cached_tokens;
  if (verdict.answer == AdmissionAnswer::kAccept) {
    arrival.forecast_ttft = verdict.ttft;
  }
  admitted_.view.least_tpot = std::min(admitted_.view.least_tpot, ask.tpot);
  put_in_line(prompt_of(ask));
  return {ask, verdict};
}

void Engine::absorb_one(const EngineRefusal& refusal, Nanos) {
  if (recorder_ != nullptr) {
    recorder_->refusal(next_step_, refusal.ask, refusal.verdict);
  }
}

// Those that policies are not shown because they could not begin now.
void Engine::view_later() {
  auto shown = waiting_views_.begin();
  for (const LiveSequence* sequence : waiting_) {
    if (sequence->service_class != kLs || later_views_.size() == kLaterShown) {
      return;
    }
    if (shown != waiting_views_.end() && shown->id == sequence->id) {
      ++shown;
    } else {
      later_views_.push_back(prompt_of(*sequence));
    }
  }
}

}  // namespace tandem
