#include "sim/load_run.h"

#include <algorithm>
#include <utility>

#include "workload/random.h"

namespace tandem::sim {
namespace {

// Equal seeds give equal tokens, so prompts share what the plan says.
void append_tokens(const workload::PromptPart& part, int32_t vocabulary,
                   std::vector<TokenId>& tokens) {
  workload::Random random(part.seed);
  for (int32_t i = 0; i < part.tokens; ++i) {
    tokens.push_back(static_cast<TokenId>(random.below(static_cast<uint64_t>(vocabulary))));
  }
}

RequestSize size_of(const loadgen::RequestRecord& record) {
  return {.prompt_tokens = record.planned_input_tokens,
          .output_tokens = record.planned_output_tokens};
}

}  // namespace

class LoadRun::Sink final : public TokenSink {
 public:
  explicit Sink(LoadRun& run) : run_(&run) {}
  void deliver(std::vector<TokenEvent> events) override {
    for (const TokenEvent& event : events) {
      if (run_ != nullptr) {
        run_->take_event(event);
      }
    }
  }
  void forget() { run_ = nullptr; }

 private:
  LoadRun* run_;
};

LoadRun::LoadRun(VirtualTime& time, std::vector<Target> targets, EngineChoice choice,
                 const loadgen::Load& load)
    : time_(time),
      targets_(std::move(targets)),
      choice_(std::move(choice)),
      load_(load),
      began_(time.now()),
      sink_(std::make_shared<Sink>(*this)) {
  for (const loadgen::RequestGroup& group : load.groups) {
    classes_.push_back(class_of(group));
  }
  result_.records.resize(load.requests.size());
  for (size_t i = 0; i < load.requests.size(); ++i) {
    const loadgen::LoadRequest& planned = load.requests[i];
    result_.records[i] = {.group = planned.group,
                          .model = planned.model,
                          .planned_input_tokens = planned.plan.input_tokens,
                          .planned_output_tokens = planned.plan.output_tokens,
                          .planned_at = planned.plan.at};
  }
  ask_next();
}

LoadRun::~LoadRun() { sink_->forget(); }

void LoadRun::ask_next() {
  if (next_ < std::ssize(load_.requests)) {
    time_.ask(began_ + load_.requests[static_cast<size_t>(next_)].plan.at, *this, next_);
  }
}

void LoadRun::on_time(int64_t what) {
  if (taken_) {
    return;
  }
  send(what);
  ++next_;
  ask_next();
}

std::vector<size_t> LoadRun::engines_for(const loadgen::RequestRecord& record) const {
  return targets_.size() == 1 ? std::vector<size_t>{0}
                              : choice_.order(record.group, size_of(record));
}

void LoadRun::set_engine(loadgen::RequestRecord& record, size_t engine) const {
  if (targets_.size() > 1) {
    record.model = static_cast<int32_t>(engine);
  }
}

Request LoadRun::request_of(const loadgen::LoadRequest& planned, int32_t vocabulary) const {
  const loadgen::RequestGroup& group = load_.groups[static_cast<size_t>(planned.group)];
  Request request;
  request.prompt.reserve(static_cast<size_t>(planned.plan.input_tokens));
  for (const workload::PromptPart& part : planned.plan.prompt) {
    append_tokens(part, vocabulary, request.prompt);
  }
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = planned.plan.output_tokens;
  request.service_class = classes_[static_cast<size_t>(planned.group)];
  request.level = group.priority.value_or(0);
  request.slo = group.sent_slo();
  request.sink = sink_;
  return request;
}

void LoadRun::send(int64_t index) {
  loadgen::RequestRecord& record = result_.records[static_cast<size_t>(index)];
  record.due_at = record.planned_at;
  record.sent_at = record.planned_at;
  const std::vector<size_t> engines = engines_for(record);
  std::optional<Refusal> first_refusal;
  for (const size_t engine : engines) {
    const Target& target = targets_[engine];
    Request request = request_of(load_.requests[static_cast<size_t>(index)], target.vocabulary);
    request.sink_tag = static_cast<uint64_t>(index);
    set_engine(record, engine);
    std::optional<Refusal> refused =
        target.driver->submit(RequestId{index + 1}, std::move(request));
    if (!refused.has_value()) {
      record.outcome = loadgen::Outcome::kInterrupted;  // until it ends
      choice_.accepted(engine, size_of(record));
      return;
    }
    if (!first_refusal.has_value()) {
      first_refusal = std::move(refused);
    }
  }
  set_engine(record, engines.front());
  refuse(record, *first_refusal);
}

void LoadRun::refuse(loadgen::RequestRecord& record, const Refusal& refused) {
  record.outcome = loadgen::Outcome::kFailed;
  record.reason = refused.reason.empty() ? "refused" : refused.reason;
  record.message = refused.error.message;
  record.ended_at = now();
  ++ended_;
}

void LoadRun::take_event(const TokenEvent& event) {
  if (taken_) {
    return;
  }
  loadgen::RequestRecord& record = result_.records[static_cast<size_t>(event.tag)];
  const bool is_end = event.kind == TokenEvent::Kind::kFinish;
  if (record.chunk_times.empty() && (is_end || event.kind == TokenEvent::Kind::kToken)) {
    choice_.began(engine_of(record), size_of(record));
  }
  if (event.kind == TokenEvent::Kind::kToken) {
    record.chunk_times.push_back(now());
    return;
  }
  if (!is_end) {
    return;
  }
  choice_.ended(engine_of(record), size_of(record));
  const FinishInfo& finish = *event.finish;
  record.finish_at = now();
  record.ended_at = now();
  record.usage = loadgen::TokenUsage{.prompt_tokens = finish.prompt_tokens,
                                     .completion_tokens = finish.output_tokens,
                                     .cached_tokens = finish.cached_tokens};
  const bool failed = finish.reason == FinishReason::kError;
  record.outcome = failed ? loadgen::Outcome::kFailed : loadgen::Outcome::kDone;
  if (failed) {
    record.reason = "engine_error";
    record.message = finish.error;
  } else {
    record.finish_reason = "length";
  }
  ++ended_;
}

loadgen::RunResult LoadRun::take() {
  taken_ = true;
  result_.duration = Nanos{0};
  for (loadgen::RequestRecord& record : result_.records) {
    if (record.outcome == loadgen::Outcome::kNotSent) {
      set_engine(record, engines_for(record).front());  // it counts as planned for that engine
    }
    if (record.outcome == loadgen::Outcome::kInterrupted) {
      record.ended_at = now();
      result_.interrupted = true;
    }
    result_.duration = std::max(result_.duration, record.ended_at);
  }
  return std::move(result_);
}

}  // namespace tandem::sim
