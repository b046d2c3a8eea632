// What the requests of a test's world got: their tokens, when each came, and how they ended. One
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "plan/admission.h"
#include "request/request.h"

namespace tandem::testing {

struct Outcome {
  std::vector<TokenId> tokens;
  std::vector<Nanos> times;
  std::optional<FinishReason> reason;
  int32_t cached_tokens = 0;
  int finishes = 0;
  std::string error;
  std::vector<std::vector<float>> prompt_logprobs;  // one for each kPrompt
  std::optional<ServiceReport> report;
  std::optional<AdmissionVerdict> verdict;  // if the world has an admission
  [[nodiscard]] bool refused() const {
    return verdict.has_value() && verdict->answer == AdmissionAnswer::kRefuse;
  }
};

// By the tag of a request and the number of its choice.
class Outcomes final : public TokenSink {
 public:
  // The clock must outlive it, and so must the count of tokens in the observed steps, if given.
  explicit Outcomes(const Clock& clock, const int64_t* observed_tokens = nullptr)
      : clock_(clock), observed_tokens_(observed_tokens) {}

  [[nodiscard]] Outcome& of(int64_t tag, int32_t choice = 0) { return outcomes_[{tag, choice}]; }

  void deliver(std::vector<TokenEvent> events) override {
    for (const TokenEvent& event : events) {
      Outcome& outcome = of(static_cast<int64_t>(event.tag), event.choice);
      if (event.kind == TokenEvent::Kind::kPrompt) {
        CHECK(outcome.tokens.empty(), "the prompt of request {} after a token", event.tag);
        outcome.prompt_logprobs.emplace_back();
        for (const LogprobInfo& info : *event.prompt_logprobs) {
          outcome.prompt_logprobs.back().push_back(info.logprob);
        }
      } else if (event.kind == TokenEvent::Kind::kToken) {
        CHECK(outcome.finishes == 0, "a token after the end of request {}", event.tag);
        CHECK(observed_tokens_ == nullptr || ++tokens_ <= *observed_tokens_,
              "a token of request {} before its step was observed", event.tag);
        outcome.tokens.push_back(event.token);
        outcome.times.push_back(clock_.now());
      } else {
        const FinishInfo& finish = *event.finish;
        outcome.reason = finish.reason;
        outcome.error = finish.error;
        outcome.cached_tokens = finish.cached_tokens;
        if (finish.report != nullptr) {
          outcome.report = *finish.report;
        }
        ++outcome.finishes;
      }
    }
  }

 private:
  const Clock& clock_;
  const int64_t* observed_tokens_;
  int64_t tokens_ = 0;
  std::map<std::pair<int64_t, int32_t>, Outcome> outcomes_;
};

}  // namespace tandem::testing
