#include "sim/engine_choice.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace tandem::sim {

ServiceClass class_of(const loadgen::RequestGroup& group) {
  const Result<ServiceClass> named = parse_service_class(group.service_tier);
  return named.ok() ? *named : ServiceClass::kLatencySensitive;
}

std::vector<size_t> engines_of(const loadgen::RequestGroup& group,
                               const std::vector<EngineTarget>& engines) {
  std::vector<size_t> taking;
  for (size_t i = 0; i < engines.size(); ++i) {
    const EngineTarget& engine = engines[i];
    if (group.engine.empty() ? !engine.serves || *engine.serves == class_of(group)
                             : group.engine == engine.name) {
      taking.push_back(i);
    }
  }
  std::ranges::sort(taking, {}, [&](size_t engine) { return engines[engine].name; });
  return taking;
}

EngineChoice::EngineChoice(const std::vector<EngineTarget>& engines,
                           const std::vector<loadgen::RequestGroup>& groups)
    : queues_(engines.size()) {
  for (const loadgen::RequestGroup& group : groups) {
    candidates_.push_back(engines_of(group, engines));
    CHECK(!candidates_.back().empty(), "no engine takes '{}'", group.name);
  }
}

size_t EngineChoice::choose(int32_t group) const {
  return *std::ranges::min_element(
      candidates_[static_cast<size_t>(group)], {}, [this](size_t engine) {
        return std::tuple(queues_[engine].prompt_tokens, queues_[engine].requests);
      });
}

void EngineChoice::sent(size_t engine, int64_t prompt_tokens) {
  queues_[engine].prompt_tokens += prompt_tokens;
  ++queues_[engine].requests;
}

void EngineChoice::began(size_t engine, int64_t prompt_tokens) {
  queues_[engine].prompt_tokens -= prompt_tokens;
}

void EngineChoice::ended(size_t engine) { --queues_[engine].requests; }

}  // namespace tandem::sim
