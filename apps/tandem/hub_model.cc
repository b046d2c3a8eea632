#include "hub_model.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdlib>

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "hub/model_name.h"
#include "model/config.h"
#include "model/json_fields.h"
#include "progress.h"

namespace tandem {

namespace {

std::string environment_value(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): at start
  return value == nullptr ? "" : value;
}

Status check_config(const std::filesystem::path& path) {
  constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;
  ASSIGN_OR_RETURN(const std::string text, model::read_text_file(path, kMaxConfigBytes));
  const Result<model::ModelConfig> config = model::parse_config(text);
  return config.ok() ? Status() : Status(config.error());
}

// False: there is nothing at `path`, or it may not be looked for. What lies in a folder that may
// not be searched counts as there, so that opening it says why it cannot be used.
bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::file_type type = std::filesystem::status(path, ignored).type();
  return type == std::filesystem::file_type::none
             ? std::filesystem::exists(path.parent_path(), ignored)
             : type != std::filesystem::file_type::not_found;
}

}  // namespace

Status read_hub_environment(hub::HubOptions& options) {
  return hub::read_environment(options, environment_value);
}

Status read_hub_cache(hub::HubOptions& options) {
  return hub::read_cache_folder(options, environment_value);
}

Result<hub::PulledModel> pull_model(const hub::ModelName& name, const hub::HubOptions& options,
                                    const std::function<bool()>& stop) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file over its limit is an error of the disk, not the end
  const SteadyClock clock;
  ProgressBar bar(fmt::format("downloading {}", name.text()), clock);
  const Nanos began = clock.now();
  bool shown = false;
  const Result<hub::PulledModel> pulled = hub::pull(name, options,
                                                    {.on_progress =
                                                         [&](int64_t done, int64_t total) {
                                                           shown = shown || done < total;
                                                           if (shown) {
                                                             bar.show(done, total);
                                                           }
                                                         },
                                                     .on_note =
                                                         [&](const std::string& line) {
                                                           bar.clear();
                                                           log::warn("{}", line);
                                                         },
                                                     .stop = stop,
                                                     .check_config = check_config});
  bar.clear();
  if (pulled.ok() && shown) {
    log::info("downloaded {} in {}", name.text(), format_duration(clock.now() - began));
  }
  return pulled;
}

Result<FoundModel> find_model(const std::filesystem::path& given, hub::HubOptions& options,
                              const std::function<bool()>& stop) {
  const std::string text = given.string();
  if (is_there(given) || !hub::looks_like_model_name(text)) {
    return FoundModel{.path = given, .served_name = {}};
  }
  const Result<hub::ModelName> name = hub::parse_model_name(text);
  if (!name.ok()) {
    return invalid_argument(
        fmt::format("there is no file or folder '{}', and {}", text, name.error().message),
        "model");
  }
  RETURN_IF_ERROR(read_hub_environment(options));
  options.cached_will_do = true;
  const Result<hub::PulledModel> pulled = pull_model(*name, options, stop);
  if (!pulled.ok()) {
    Error error = pulled.error();
    if (error.code == ErrorCode::kNotFound) {
      error.code = ErrorCode::kUnavailable;  // the hub or the cache may have the model later
    }
    error.message =
        fmt::format("there is no file or folder '{}'; as a model's name: {}", text, error.message);
    return error;
  }
  log::info("model {}: commit {}{}", name->text(), pulled->commit,
            pulled->asked_hub ? "" : ", from the cache");
  return FoundModel{.path = pulled->path, .served_name = name->repository};
}

}  // namespace tandem
