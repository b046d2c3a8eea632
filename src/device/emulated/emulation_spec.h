// What `--emulate-accelerator SPEC` says: the shape of an accelerator that is played by some of
// this machine's cores. Plain data and its parser.
//
// Grammar: items separated by commas, each at most once, in any order; an empty SPEC is all
// defaults.
//   cores=N        cores that compute and copy for the accelerator (hardware threads where there
//                  are too few cores for both)
//   host-cores=N   cores left for attention on the host; never shared with the accelerator's
//   pace=NAME      paced: no op ends earlier than on a100, h100, h200, t4 or a10 (cost_model.h)
//   hollow         with pace: dense ops and resident attention only take their time and leave
//                  finite numbers, so models that do not fit can be paced; all else stays real
//   link-gbps=X    GB/s of the link between the tiers, each direction; copies are paced by it, also
//                  without pace (where the profile's own is the default)
//   slowdown=X     modelled times are multiplied by this, so that real ops fit into them
//   faults=F:N+..  for drills: hold:N holds back N of a thousand copies between the tiers; all
//                  other faults are the host workers' and are passed on unread, see
//                  piggyback/workers/faulty_workers.h
//   fault-seed=N   which ones
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/cpu/topology.h"
#include "device/emulated/cost_model.h"

namespace tandem::device {

struct EmulationSpec {
  int32_t cores = 0;       // 0: half of what this process may use, rounded down, at least one
  int32_t host_cores = 0;  // 0: the rest
  const AcceleratorProfile* pace = nullptr;  // null: free-running
  bool hollow = false;                       // only with pace
  double link_gbps = 0;                      // 0: as `pace` says, or not paced
  double slowdown = 1;
  int32_t held = 0;           // copies that are held back, of a thousand
  std::string worker_faults;  // "throw:20+stuck:1"; for whoever has workers
  uint64_t fault_seed = 1;

  // Bytes per second of the link, 0 when copies are not paced.
  [[nodiscard]] double link_bytes_per_second() const {
    return link_gbps > 0 ? link_gbps * 1e9 : pace != nullptr ? pace->link_bytes : 0;
  }
};

// "free-running", "paced as h200", "paced as h200, hollow", ...: what every result of such a run
// must say.
std::string describe_pace(const EmulationSpec& spec);

// An error names the item, what is wrong with it and what could stand there.
Result<EmulationSpec> parse_emulation_spec(std::string_view text);

struct EmulatedCores {
  std::vector<int32_t> accelerator;
  std::vector<int32_t> host;
};

// Divides the CPUs of `nodes` (those that this process may use), one of each core where that is
// enough and else all, node by node: the accelerator's from the front, the host's from the back.
// Errors when there are too few. One CPU and a spec that names no number: both share it.
Result<EmulatedCores> divide_cores(const EmulationSpec& spec, std::span<const MemoryNode> nodes);

}  // namespace tandem::device
