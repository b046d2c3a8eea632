// Which of several engines gets a request: the engine that its group names; or, of the engines that
// serve its class, that with the fewest queued prompt tokens, then the fewest requests, then the
// first by name. So the order in which engines are listed does not matter. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loadgen/load.h"
#include "request/slo.h"

namespace tandem::sim {

struct EngineTarget {
  std::string name;
  std::optional<ServiceClass> serves;  // of groups that name no engine; nullopt: every class
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
  [[nodiscard]] size_t choose(int32_t group) const;
  // What becomes of a request: it is sent, its prompt waits no more, it has ended.
  void sent(size_t engine, int64_t prompt_tokens);
  void began(size_t engine, int64_t prompt_tokens);
  void ended(size_t engine);

 private:
  struct Queue {
    int64_t prompt_tokens = 0;  // of requests without a token
    int64_t requests = 0;
  };
  std::vector<std::vector<size_t>> candidates_;  // by group
  std::vector<Queue> queues_;                    // by engine
};

}  // namespace tandem::sim
