// `tandem pull` and `tandem list`: models of a hub and the cache that they are kept in.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/printable.h"
#include "base/units.h"
#include "cli/option_flags.h"
#include "commands.h"
#include "hub/cache.h"
#include "hub/model_name.h"
#include "hub_model.h"
#include "model/model_folder.h"
#include "signals.h"

namespace tandem {
namespace {

constexpr int kExitOfSignals = 128;  // plus the signal's number, as shells report it

struct PullFlags {
  std::string model;
  hub::HubOptions hub;
};

struct ListFlags {
  hub::HubOptions hub;
  bool json = false;
};

Result<int> run_pull(PullFlags& flags) {
  const Signals signals;
  ASSIGN_OR_RETURN(const hub::ModelName name, hub::parse_model_name(flags.model));
  RETURN_IF_ERROR(read_hub_environment(flags.hub));
  int stopped_by = 0;  // a closed terminal stops it, too
  const Result<hub::PulledModel> pulled = pull_model(name, flags.hub, [&] {
    stopped_by = stopped_by > 0 ? stopped_by : signals.take(Nanos{0});
    return stopped_by > 0;
  });
  if (stopped_by > 0) {
    log::warn("stopped; the same command goes on where this one ended");
    return kExitOfSignals + stopped_by;
  }
  if (!pulled.ok()) {
    return pulled.error();
  }
  log::info("{} is whole: commit {}{}", name.text(), pulled->commit,
            pulled->asked_hub ? fmt::format(", {}", format_bytes(pulled->bytes)) : "");
  fmt::print("{}\n", pulled->path.string());
  return 0;
}

std::string missing_text(const std::vector<std::string>& missing) {
  const std::string first = printable(missing.front());
  return missing.size() == 1
             ? fmt::format("incomplete: {} missing", first)
             : fmt::format("incomplete: {} and {} more missing", first, missing.size() - 1);
}

// Why Tandem cannot serve the folder or GGUF file; empty: it can, as far as its configuration says.
std::string obstacle_of(const std::filesystem::path& path) {
  const auto opened = model::open_model_folder(path);
  return opened.ok() ? std::string() : printable(opened.error().message);
}

std::string gguf_obstacle(const hub::CachedModel& model, const std::string& file) {
  const std::vector<std::string> missing = hub::missing_files(model.path, file);
  return missing.empty() ? obstacle_of(model.path / file) : missing_text(missing);
}

// Of a repository of GGUF files: why no file of it can be served.
std::string obstacle(const hub::CachedModel& model) {
  if (!model.is_gguf) {
    return model.missing.empty() ? obstacle_of(model.path) : missing_text(model.missing);
  }
  std::string first;
  for (const std::string& file : model.gguf) {
    const std::string reason = gguf_obstacle(model, file);
    if (reason.empty()) {
      return {};
    }
    first = first.empty() ? reason : first;
  }
  return first;
}

// "main, v1" or the beginning of the commit.
std::string revision_text(const hub::CachedModel& model) {
  constexpr size_t kShortCommit = 12;
  const std::string commit = model.commit.substr(0, kShortCommit);
  return model.revisions.empty() ? commit
         : commit.empty()
             ? "-"
             : printable(fmt::format("{} ({})", fmt::join(model.revisions, ", "), commit));
}

std::string list_json(const std::vector<hub::CachedModel>& models) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const hub::CachedModel& model : models) {
    const std::string reason = obstacle(model);
    json.push_back({{"name", model.repository},
                    {"commit", model.commit},
                    {"revisions", model.revisions},
                    {"bytes", model.bytes},
                    {"incomplete_bytes", model.incomplete_bytes},
                    {"complete", model.missing.empty()},
                    {"missing", model.missing},
                    {"servable", reason.empty()},
                    {"reason", reason},
                    {"gguf", model.gguf},
                    {"path", model.path.string()}});
  }
  return json.dump(2, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

Result<int> run_list(ListFlags& flags) {
  RETURN_IF_ERROR(read_hub_cache(flags.hub));
  const std::vector<hub::CachedModel> models = hub::list_models(flags.hub.cache);
  if (flags.json) {
    fmt::print("{}\n", list_json(models));
    return 0;
  }
  if (models.empty()) {
    fmt::print("no models in {}; tandem pull ORG/NAME downloads one\n",
               printable(flags.hub.cache.string()));
    return 0;
  }
  size_t name_width = 5;
  size_t revision_width = 8;
  for (const hub::CachedModel& model : models) {
    name_width = std::max(name_width, model.repository.size());
    revision_width = std::max(revision_width, revision_text(model).size());
  }
  fmt::print("{:<{}}  {:<{}}  {:>10}  SERVABLE\n", "MODEL", name_width, "REVISION", revision_width,
             "SIZE");
  for (const hub::CachedModel& model : models) {
    const std::string reason = obstacle(model);
    fmt::print("{:<{}}  {:<{}}  {:>10}  {}\n", model.repository, name_width, revision_text(model),
               revision_width, format_bytes(model.bytes),
               reason.empty() ? std::string("yes") : "no: " + reason);
    for (const std::string& file : model.gguf) {
      const std::string why = model.is_gguf ? gguf_obstacle(model, file) : std::string();
      fmt::print("  {}:{}{}\n", model.repository, printable(file),
                 why.empty() ? std::string() : "  no: " + why);
    }
  }
  return 0;
}

int report(const Result<int>& code) {
  if (code.ok()) {
    return *code;
  }
  log::error("{}", code.error().message);
  // Unlike exit_code_of: a model that the hub does not have may come.
  const ErrorCode cause = code.error().code;
  return cause == ErrorCode::kInvalidArgument || cause == ErrorCode::kUnsupported ? 2 : 1;
}

}  // namespace

RunCommand describe_pull(cli::Command app) {
  auto flags = std::make_shared<PullFlags>();
  app.add_option("model", flags->model,
                 "ORG/NAME, ORG/NAME@REVISION, or ORG/NAME:FILE.gguf of a GGUF repository")
      .required();
  cli::add_options(app, hub::hub_option_table(flags->hub));
  app.let_last_win();
  app.footer(
      "\nThe last line is the model's folder or file. The same command again goes on after a "
      "stop.\n"
      "Variables: HF_TOKEN for private and gated models, HF_HOME, HF_HUB_CACHE, HF_ENDPOINT,\n"
      "HF_HUB_OFFLINE, HF_HUB_DOWNLOAD_TIMEOUT.");
  return [flags] { return report(run_pull(*flags)); };
}

RunCommand describe_list(cli::Command app) {
  auto flags = std::make_shared<ListFlags>();
  app.add_flag("--json", flags->json, "Print JSON");
  OptionTable table = hub::hub_option_table(flags->hub);
  std::erase_if(table, [](const OptionDescriptor& option) { return option.name == "offline"; });
  cli::add_options(app, table);
  app.let_last_win();
  return [flags] { return report(run_list(*flags)); };
}

}  // namespace tandem
