// Options as JSON: /v1/tandem/config, the configurations in results, and the heads of records.
// Threads: any; plain functions.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "options/option_descriptor.h"

namespace tandem {

// Adds every option under its key: null if it is not given, and for a secret that is given "***".
void write_options(const OptionTable& table, nlohmann::ordered_json& config);

// Sets the options that are recorded from the object that write_options made. Errors name the key:
// a missing value that every record has, a value that is not possible.
Status read_recorded_options(const nlohmann::json& config, const OptionTable& table);

}  // namespace tandem
