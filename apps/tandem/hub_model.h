// A model that is named instead of pointed to: from the hub or its cache.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "base/result.h"
#include "hub/options.h"
#include "hub/pull.h"

namespace tandem {

// The environment's part of the options. Before threads start.
Status read_hub_environment(hub::HubOptions& options);
// The folder of the cache alone.
Status read_hub_cache(hub::HubOptions& options);

// Brings a model into the cache with a progress bar, or lines where standard error is no terminal.
// Needs read_hub_environment.
Result<hub::PulledModel> pull_model(const hub::ModelName& name, const hub::HubOptions& options,
                                    const std::function<bool()>& stop);

struct FoundModel {
  std::filesystem::path path;
  std::string served_name;  // of a model by name; empty: as the path has it
};

// The model at `given`, which is a path where there is such a file or folder, and otherwise may be
// a model's name. A path that does not exist is returned as it is if it cannot be a name.
Result<FoundModel> find_model(const std::filesystem::path& given, hub::HubOptions& options,
                              const std::function<bool()>& stop);

}  // namespace tandem
