// --host of `tandem simulate`: the hosts of a second tier as "key=value;key=value" each, or as maps
// in a scenario. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/sim_host.h"

namespace tandem::sim {

struct HostList {
  std::vector<SimHostSpec> hosts;  // those that are pooled are one
  int64_t kv_bytes = 0;            // of all
};

// `defaults`: for keys that a host does not set. Needs at least one text. Errors name the key.
Result<HostList> parse_hosts(const std::vector<std::string>& texts, const SimHostSpec& defaults);

}  // namespace tandem::sim
