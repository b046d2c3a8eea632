// The flags of `tandem serve` and what they mean for the node and the HTTP server.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/server_options.h"
#include "base/result.h"
#include "batches/batch_options.h"
#include "cli/command.h"
#include "hub/options.h"
#include "model/generation_config.h"
#include "node/node_options.h"
#include "options/option_descriptor.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem {

struct ServeFlags {
  NodeOptions node;
  api::ServerOptions server;
  batches::BatchOptions batches;
  hub::HubOptions hub;
  std::string device = "auto";
  std::string tokenizer;           // a folder; empty: the model's
  std::string chat_template;       // a file or a template; empty: the model's
  std::string step_budget;         // a time, or a file of `tandem tune`; empty: none is given
  bool fixed_step_budget = false;  // it follows no goals of that file
  std::string log_level = "info";
  std::string log_format = "text";
  Nanos drain_timeout = std::chrono::seconds(60);
  bool check = false;                   // show what would be done, and end
  std::vector<std::string> vllm_notes;  // what was said of flags that change nothing
};

// The options that neither the node nor the HTTP server has: see options/option_descriptor.h.
OptionTable command_option_table(ServeFlags& flags);

void add_serve_flags(cli::Command command, ServeFlags& flags);

// The flags of the model and its engine, which `tandem batch run` shares.
void add_node_flags(cli::Command command, ServeFlags& flags);
// The options of add_node_flags. The table sets `flags`, which outlives it; a step budget that no
// option sets is measured.
OptionTable node_flag_table(ServeFlags& flags);

// The logging options in this group of the help, and the options of what text is made by.
void add_log_flags(cli::Command command, ServeFlags& flags, const std::string& group);
void add_text_flags(cli::Command command, ServeFlags& flags);

// Where profiles of step times are kept: below $XDG_CACHE_HOME or ~/.cache; empty: nowhere.
std::filesystem::path profile_folder();

// What a request that leaves a field out gets: generation_config.json, then our own defaults.
openai::GenerationDefaults request_defaults(const model::GenerationDefaults& of_model);

// Checks what options say together, and fills in what follows from them. An error names the flag.
Status resolve(ServeFlags& flags);

// Without a model, takes the model that comes with Tandem, and as much memory as it needs.
void take_default_model(ServeFlags& flags);

// A model that is given by its name is brought into the cache, and `flags.node` gets its path.
// `stop` ends that.
Status fetch_model(ServeFlags& flags, const std::function<bool()>& stop);

Status start_log(const ServeFlags& flags);

struct TextParts {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<const text::ChatTemplate> chat_template;
};
// Reads the model's folder, or those that flags name instead. Before the node is opened: the
// tokenizer's end token ends answers, too, and goes into `flags.node`.
Result<TextParts> load_text(ServeFlags& flags);

// Whether flags, objectives or keys give targets, or a class or level other than the usual ones.
// Needs resolved flags.
bool gives_targets(const ServeFlags& flags);
bool gives_classes(const ServeFlags& flags);

// The effective configuration: that of the node, with all options of the server and the command.
std::string config_json(const std::string& of_node, ServeFlags& flags);

}  // namespace tandem
