// Which of several engines gets a request: the engine that its group names; or, of the engines that
// serve its class, the engine on which the request is expected to end first, then the first by
// name. So the order in which engines are listed does not matter. One thread.
//
// An engine is expected to need, for the request and all that it has accepted before:
//   the prompts of requests without a token, and its own prompt   x speed.prompt_token
//   the answers of all requests that have not ended               x speed.full_decode
//   the answer of the request itself                              x speed.sole_decode
// Answers count with all the tokens that their requests ask for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "loadgen/load.h"
#include "request/slo.h"

namespace tandem::sim {

// The time that an engine needs for one token.
struct EngineSpeed {
  Nanos prompt_token{1};
  Nanos full_decode{1};  // in a step with the largest number of decodes
  Nanos sole_decode{1};  // in a step of its own
};

struct EngineTarget {
  std::string name;
  std::optional<ServiceClass> serves;  // of groups that name no engine; nullopt: every class
  EngineSpeed speed = {};
};

struct RequestSize {
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;  // that it asks for
};

// That of the group's service tier; of no or another tier: latency sensitive.
ServiceClass class_of(const loadgen::RequestGroup& group);

// The engines that take requests of the group, by name; empty: none does.
std::vector<size_t> engines_of(const loadgen::RequestGroup& group,
                               const std::vector<EngineTarget>& engines);

class EngineChoice {
 public:
  // Some engine takes each group.
  EngineChoice(const std::vector<EngineTarget>& engines,
               const std::vector<loadgen::RequestGroup>& groups);

  [[nodiscard]] size_t engines() const { return queues_.size(); }
  // The engines that take requests of the group, the best one for a request of this size first.
  [[nodiscard]] std::vector<size_t> order(int32_t group, const RequestSize& size) const;
  // The engine has accepted the request; the request has its first token; the request has ended.
  void accepted(size_t engine, const RequestSize& size);
  void began(size_t engine, const RequestSize& size);
  void ended(size_t engine, const RequestSize& size);

 private:
  struct Queue {
    EngineSpeed speed;
    RequestSize open = {};  // prompts of requests without a token, and answers of all requests
    [[nodiscard]] Nanos end_of(const RequestSize& size) const;
  };
  std::vector<std::vector<size_t>> candidates_;  // by group
  std::vector<Queue> queues_;                    // by engine
};

}  // namespace tandem::sim
