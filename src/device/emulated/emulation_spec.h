// What `--emulate-accelerator SPEC` says: the shape of an accelerator that is played by some of
// this machine's cores. Plain data and its parser.
//
// Grammar: items separated by commas, each at most once, in any order; an empty SPEC is all
// defaults.
//   cores=N        cores that compute and copy for the accelerator
//   host-cores=N   cores left for attention on the host; never shared with the accelerator's
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::device {

struct EmulationSpec {
  int32_t cores = 0;       // 0: half of what this process may use, rounded down, at least one
  int32_t host_cores = 0;  // 0: the rest
};

// An error names the item, what is wrong with it and what could stand there.
Result<EmulationSpec> parse_emulation_spec(std::string_view text);

struct EmulatedCores {
  std::vector<int32_t> accelerator;
  std::vector<int32_t> host;
};

// Divides `cpus` (those that this process may use, ascending): the accelerator's from the front,
// the host's from the back. Errors when there are too few. One CPU and a spec that names no number:
// both share it.
Result<EmulatedCores> divide_cores(const EmulationSpec& spec, const std::vector<int32_t>& cpus);

}  // namespace tandem::device
