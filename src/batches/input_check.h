// Looks through a batch's input before its first request: a line that could not be answered by its
// number and custom_id, or is for another endpoint or model, fails the whole batch at once, not a
// day later. What a body asks for is not looked at: it is its line's own error. Threads: any; takes
// time in proportion to the input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "batches/batch_options.h"
#include "batches/objects.h"
#include "openai/generation_request.h"
#include "openai/model_directory.h"

namespace tandem::batches {

struct InputCheck {
  int64_t lines = 0;                // that are not blank
  std::vector<BatchFault> faults;   // the first kMaxFaults; none: the batch may begin
  std::vector<std::string> models;  // see BatchObject
  bool stopped = false;             // should_stop() said so
  static constexpr size_t kMaxFaults = 100;
};

[[nodiscard]] Result<InputCheck> check_input(const std::filesystem::path& input,
                                             openai::Endpoint endpoint,
                                             const openai::ModelDirectory& models,
                                             const BatchOptions& options,
                                             const std::function<bool()>& should_stop);

}  // namespace tandem::batches
