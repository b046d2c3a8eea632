// The effective configuration of a model on its node, as JSON: every option of the node under its
// key, with what became of it, and what was found out at the start. Threads: any.
#pragma once

#include <string>

#include "latency/profile.h"
#include "node/node_options.h"
#include "node/planned_model.h"

namespace tandem {

// One object.
std::string effective_config_json(const NodeOptions& options, const PlannedModel& model);

// The same as the head of a record file: with the profile (which may be null), so that what was
// believed of step times can be believed again.
std::string record_head(const NodeOptions& options, const PlannedModel& model,
                        const latency::Profile* profile);

}  // namespace tandem
