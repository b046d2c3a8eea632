// The part of a config.json that says how positions are rotated: rope_theta, rope_scaling (to
// transformers 4) and rope_parameters (from 5). Any thread.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "model/config.h"
#include "model/json_fields.h"

namespace tandem::model {

inline constexpr int64_t kMaxPositions = int64_t{1} << 24;  // that any config may ask for

// Needs config.max_positions and config.head_dim; sets rope_theta, rope_scaling and
// stretched_positions. On an error the config is not to be used.
Status parse_rope(const JsonFields& fields, ModelConfig& config);

}  // namespace tandem::model
