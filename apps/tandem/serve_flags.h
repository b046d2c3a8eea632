// The flags of `tandem serve` and what they mean for the node and the HTTP server.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "api/server_options.h"
#include "base/result.h"
#include "cli/command.h"
#include "model/generation_config.h"
#include "node/node_options.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem {

// As given; texts with units are not parsed yet.
struct ServeFlags {
  NodeOptions node;
  api::ServerOptions server;
  std::string dtype = "auto";
  std::string kv_dtype = "auto";
  std::string device = "auto";
  std::string numa = "auto";
  std::string emulation;
  std::string host_memory;
  std::string device_memory;
  std::string record_limit = "1GiB";
  std::string drain_timeout = "60s";
  std::string hop_patience = "2s";
  std::string log_level = "info";
  std::string log_format = "text";
  std::string tokenizer;                // a folder; empty: the model's
  std::string chat_template;            // a file or a template; empty: the model's
  double memory_share = 0;              // 0: not given
  bool check = false;                   // show what would be done, and end
  std::vector<std::string> vllm_notes;  // what was said of flags that change nothing
  std::string time_model = "modular";
  std::string prefix_caching = "on";
  std::string admission = "on";
  std::string max_body = "32MiB";
  std::vector<std::string> given_api_keys;
  std::string api_key_file;
  std::string default_class = "latency_sensitive";
  std::vector<std::string> objectives;
  std::string ttft_slo;
  std::string tpot_slo;
  std::string header_timeout = "15s";
  std::string body_timeout = "60s";
  std::string idle_timeout = "75s";
  std::string write_timeout = "60s";
  std::string max_request_bytes = "512MiB";
  std::string max_answer_bytes = "512MiB";
  std::vector<std::string> allowed_origins;  // empty: see api::CorsOptions
  int ssl_cert_reqs = 0;
  bool allow_credentials = false;
  bool no_vllm_metrics = false;
  Nanos drain{0};
};

void add_serve_flags(cli::Command command, ServeFlags& flags);

// Of them those of the model and its engine, which `tandem batch run` shares.
void add_node_flags(cli::Command command, ServeFlags& flags);

// How lines are logged, and what text is made by: serve and batch run.
void add_log_flags(cli::Command command, ServeFlags& flags);
void add_text_flags(cli::Command command, ServeFlags& flags);

// Where profiles of step times are kept: below $XDG_CACHE_HOME or ~/.cache; empty: nowhere.
std::filesystem::path profile_folder();

// What a request that leaves a field out gets: generation_config.json, then our own defaults.
openai::GenerationDefaults request_defaults(const model::GenerationDefaults& of_model);

// Checks and converts; an error names the flag.
Status resolve(ServeFlags& flags);

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

// Of --api-key and, read anew, of --api-key-file.
Result<std::vector<api::ApiKey>> api_keys(const ServeFlags& flags);

// The effective configuration: that of the node, and what the front end adds to every request.
std::string config_json(const std::string& of_node, const ServeFlags& flags);

}  // namespace tandem
