#include "sim/engine_choice.h"

#include <algorithm>

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
                           const std::vector<loadgen::RequestGroup>& groups) {
  for (const EngineTarget& engine : engines) {
    queues_.push_back({.speed = engine.speed});
  }
  for (const loadgen::RequestGroup& group : groups) {
    candidates_.push_back(engines_of(group, engines));
    CHECK(!candidates_.back().empty(), "no engine takes '{}'", group.name);
  }
}

Nanos EngineChoice::Queue::end_of(const RequestSize& size) const {
  return speed.prompt_token * (open.prompt_tokens + size.prompt_tokens) +
         speed.full_decode * open.output_tokens + speed.sole_decode * size.output_tokens;
}

std::vector<size_t> EngineChoice::order(int32_t group, const RequestSize& size) const {
  std::vector<size_t> order = candidates_[static_cast<size_t>(group)];
  std::ranges::stable_sort(order, {}, [&](size_t engine) { return queues_[engine].end_of(size); });
  return order;
}

void EngineChoice::accepted(size_t engine, const RequestSize& size) {
  queues_[engine].open.prompt_tokens += size.prompt_tokens;
  queues_[engine].open.output_tokens += size.output_tokens;
}

void EngineChoice::began(size_t engine, const RequestSize& size) {
  queues_[engine].open.prompt_tokens -= size.prompt_tokens;
}

void EngineChoice::ended(size_t engine, const RequestSize& size) {
  queues_[engine].open.output_tokens -= size.output_tokens;
}

}  // namespace tandem::sim
