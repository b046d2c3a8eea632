// `tandem bench serve`: an open-loop load on any OpenAI server, measured and reported.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/load_flags.h"
#include "cli/command.h"

namespace tandem::bench {

struct ServeBenchFlags {
  std::string version, commit;  // of Tandem, for the result
  StreamFlags stream;
  std::vector<std::string> streams;  // specs
  std::string backend = "openai";
  std::string base_url;
  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  std::string endpoint;
  std::string api_key;
  std::string cacert;
  bool insecure = false;
  uint64_t seed = 0;
  int64_t max_concurrency = 0;
  bool ignore_eos = true;
  double temperature = 0.0;
  std::string extra_body;
  std::string request_timeout = "300s";
  int64_t num_warmups = 0;
  std::string percentile_metrics = "ttft,tpot,itl";
  std::string metric_percentiles = "50,90,95,99";
  bool save_result = false;
  bool save_detailed = false;
  std::string result_dir;
  std::string result_filename;
  std::string report;
  std::string label;
  std::vector<std::string> metadata;
  std::optional<cli::Command> command;  // whose flags these are; set by add_serve_bench_flags
};

void add_serve_bench_flags(cli::Command app, ServeBenchFlags& flags);

// The exit code of the process: 1 when no request was answered.
int bench_serve(const ServeBenchFlags& flags);

}  // namespace tandem::bench
