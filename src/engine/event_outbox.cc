#include "engine/event_outbox.h"

#include <algorithm>

#include "engine/service_record.h"

namespace tandem {

TokenEvent* EventOutbox::add(const LiveSequence& sequence, TokenEvent::Kind kind, int32_t choice) {
  if (sequence.sink == nullptr) {
    return nullptr;
  }
  TokenEvent& event = events_of(sequence).emplace_back();
  event.kind = kind;
  event.request = sequence.request;
  event.tag = sequence.sink_tag;
  event.choice = choice;
  return &event;
}

std::vector<TokenEvent>& EventOutbox::events_of(const LiveSequence& sequence) {
  for (auto& [sink, events] : events_) {
    if (sink.get() == sequence.sink) {
      return events;
    }
  }
  std::vector<TokenEvent>& events =
      events_.emplace_back(sequence.owner->request.sink, std::vector<TokenEvent>{}).second;
  if (events_.size() == 1) {
    events.reserve(usual_events_);
  }
  return events;
}

void EventOutbox::add_finish(const LiveSequence& sequence, int32_t choice, FinishReason reason,
                             std::string error) {
  TokenEvent* event = add(sequence, TokenEvent::Kind::kFinish, choice);
  if (event == nullptr) {
    return;
  }
  auto finish = std::make_unique<FinishInfo>();
  finish->reason = reason;
  finish->prompt_tokens = sequence.prompt_tokens;
  finish->output_tokens = choice == sequence.choice ? sequence.output_tokens() : 0;
  finish->cached_tokens = sequence.cached_tokens;
  finish->error = std::move(error);
  if (sequence.owner->request.explain) {
    finish->report = make_report(sequence, hops_per_token_);
  }
  if (reason == FinishReason::kStop && finish->output_tokens > 0 &&
      std::ranges::count(sequence.stop_ids, sequence.tokens.back()) > 0) {
    finish->stop_token = sequence.tokens.back();
    --finish->output_tokens;  // the end token is neither sent nor billed
  }
  event->finish = std::move(finish);
}

void EventOutbox::deliver() {
  usual_events_ = events_.empty() ? 0 : events_.front().second.size();
  for (auto& [sink, events] : events_) {
    sink->deliver(std::move(events));
  }
  events_.clear();
}

}  // namespace tandem
