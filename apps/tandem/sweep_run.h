// Runs the points of a sweep as processes of this program, some at a time. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/clock.h"

namespace tandem {

// That this process may use.
int32_t usable_cores();

struct PointOutcome {
  bool ended = false;   // false: the sweep was stopped before
  std::string failure;  // empty: none
};

struct PointsRun {
  std::vector<PointOutcome> outcomes;  // one for each folder
  bool stopped = false;                // by Ctrl-C or SIGTERM
};

// `tandem simulate FOLDER/scenario.yaml -o FOLDER` for each of `folders`, which exist; what it
// prints goes to FOLDER/log. `jobs`: at a time; 0: one for each core that this process may use.
PointsRun run_points(const std::vector<std::filesystem::path>& folders, int32_t jobs,
                     const Clock& clock);

}  // namespace tandem
