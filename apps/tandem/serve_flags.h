// The flags of `tandem serve` and what they mean for the node and the HTTP server.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "api/server_options.h"
#include "base/result.h"
#include "node/node.h"

namespace tandem {

// As given; texts with units are not parsed yet.
struct ServeFlags {
  NodeOptions node;
  api::ServerOptions server;
  std::string dtype = "auto";
  std::string kv_dtype = "auto";
  std::string device = "auto";
  std::string device_memory;
  std::string record_limit = "1GiB";
  std::string drain_timeout = "60s";
  std::string log_level = "info";
  std::string prefix_caching = "on";
  std::string max_body = "32MiB";
  bool allow_credentials = false;
  bool no_vllm_metrics = false;
  Nanos drain{0};
};

void add_serve_flags(CLI::App& command, ServeFlags& flags);

// Checks and converts; an error names the flag.
Status resolve(ServeFlags& flags);

}  // namespace tandem
