// Where, when and how a run was made: what a result needs so that someone else can judge and repeat
// it. Plain data, and what this machine says of itself. Threads: any.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::loadgen {

struct RunInfo {
  std::string tandem_version;
  std::string commit;   // of the sources; empty: not known
  std::string command;  // as it was typed, without credentials
  std::string label;    // the user's name for the run
  std::string date;     // ISO 8601, UTC, of the start
  std::string backend;  // "openai", "openai-chat" or "simulated"
  std::string url;
  std::string model;        // the first one
  double request_rate = 0;  // infinite: "inf"
  double burstiness = 1;
  int64_t max_concurrency = 0;             // 0: no bound
  std::vector<double> percentiles = {99};  // shown and as pNN_ keys
  std::vector<std::string> percentile_metrics = {"ttft", "tpot", "itl"};
  nlohmann::ordered_json config;         // the effective options
  nlohmann::ordered_json server_config;  // what the server says of itself; null: nothing
  nlohmann::ordered_json machine;        // of the generator
  nlohmann::ordered_json metadata;       // the user's KEY=VALUE
};

// Processor, instruction set extensions, CPUs, memory, system, load.
nlohmann::ordered_json describe_machine();

}  // namespace tandem::loadgen
