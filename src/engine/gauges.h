// What an engine reports about its present state after each advance. Internal to engine/.
#pragma once

#include "engine/sequence_table.h"
#include "kv/kv_manager.h"
#include "observe/records.h"
#include "plan/step.h"

namespace tandem {

observe::EngineGauges gauges_of(const SequenceTable& table, const KvManager& kv,
                                bool host_suspended);
observe::TierRecord tiers_of(const StepExecutor& executor);

}  // namespace tandem
