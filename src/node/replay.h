// Runs a record file again, step by step, with the model it was made with, and compares: every view
// the policy saw, every plan, every token. A difference is either another model, build or machine,
// or a bug.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/result.h"
#include "node/node_options.h"

namespace tandem {

struct ReplayReport {
  int64_t steps = 0;
  int64_t requests = 0;
  int64_t tokens = 0;
  bool complete = true;  // false: the record was cut (limit, crash); what there is was replayed
  std::string first_difference;  // empty: the run was reproduced exactly
  std::string other_kernels;     // a sentence where the record's could not be used; else empty
  bool other_build = false;      // the record does not name this build's computing code
};

// `overrides.model` names the folder; the rest of the configuration comes from the record, the
// kernels too where this machine has them and `overrides` asks for no others, but not the threads.
// `clock` is this machine's: events of two tiers are waited for by it.
Result<ReplayReport> replay(const std::filesystem::path& record, const NodeOptions& overrides,
                            const Clock& clock,
                            const std::function<void(int64_t steps)>& on_progress);

}  // namespace tandem
