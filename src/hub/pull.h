// Brings a model by its name into the cache: only the files that a server needs, several at a time.
// Threads: pull() starts its own and returns when they have ended; hooks are called on the
// caller's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/result.h"
#include "hub/model_name.h"
#include "hub/options.h"

namespace tandem::hub {

struct PullHooks {
  std::function<void(int64_t bytes_done, int64_t bytes_total)> on_progress;
  std::function<void(const std::string&)> on_note;  // a line for the log
  std::function<bool()> stop;                       // true: end now; what has come is kept
  // Asked before the weights come, with the path of config.json; an error ends the pull. May be
  // empty.
  std::function<Status(const std::filesystem::path& config)> check_config;
};

struct PulledModel {
  std::filesystem::path path;  // a folder of Hugging Face's form, or the (first) GGUF file
  std::string commit;
  int64_t bytes = 0;      // of all files, if the hub was asked
  bool asked_hub = true;  // false: taken from the cache as it was
};

// Needs options with the environment read in. If the hub cannot be asked, the model of the cache
// does, with a note; with `offline`, or for a commit that pull() itself brought, the hub is not
// asked. With `cached_will_do` the cache does after all errors but a refusal by the hub and a stop.
// After an error the cache holds no half model: blobs that are whole, beginnings of others, and no
// links.
Result<PulledModel> pull(const ModelName& name, const HubOptions& options, const PullHooks& hooks);

}  // namespace tandem::hub
