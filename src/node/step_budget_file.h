// A step budget for the policy hygen with what it was found for: what `tandem tune -o` writes and
// `--step-budget` reads. JSON; other fields of the file are for people. Plain data and functions;
// any thread.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem {

inline constexpr std::array<std::string_view, 4> kHeldMetrics = {"mean_tbt", "p99_tbt", "mean_ttft",
                                                                 "p99_ttft"};

struct StepBudgetFile {
  int32_t budget_us = 0;
  bool flex_only = false;    // found with --step-budget-flex-only; absent from earlier files
  std::string model;         // for people
  std::string model_digest;  // of the shape that it was found for: see time_profile.h
  // Of kHeldMetrics, what each may be at most; 0: it was not asked for.
  std::array<int32_t, kHeldMetrics.size()> held_us{};
};

// Errors name the field, what it holds and what would do.
Result<StepBudgetFile> parse_step_budget(std::string_view text);
// The same with the file's name; also if it cannot be read.
Result<StepBudgetFile> read_step_budget(const std::filesystem::path& path);

}  // namespace tandem
