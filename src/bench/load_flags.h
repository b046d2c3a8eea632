// The flags of `tandem bench serve` that describe a stream of requests. They stand on the command
// line, where they describe the one stream or the defaults of all, and as "key=value;key=value" in
// --stream. One thread.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command.h"
#include "loadgen/load.h"

namespace tandem::bench {

struct StreamFlags {
  std::string name;
  std::string service_tier;
  std::string mix;
  std::optional<int32_t> priority;
  std::optional<double> slo_ttft_ms, slo_tpot_ms;  // headers
  std::string slo_ttft, slo_tpot;                  // body
  bool explain = false;
  std::vector<std::string> headers;
  std::vector<std::string> goodput;
  std::vector<std::string> models;
  bool of_simulation = false;  // then a stream has the key `engine`
  std::string engine;

  std::string arrivals = "auto";
  double request_rate = std::numeric_limits<double>::infinity();
  bool rate_given = false;
  double burstiness = 1.0;
  std::string burst_every = "5s";
  std::string burst_rates;
  std::optional<int64_t> num_prompts;
  std::string duration;

  std::string tasks;

  std::string dataset_path;
  std::string trace_format = "auto";
  int32_t trace_block_size = 512;
  std::string trace_start = "0";
  std::string trace_duration;
  std::optional<double> trace_rate;
  double trace_speed = 1.0;
  double length_scale = 1.0;

  int32_t random_input_len = 1024;
  int32_t random_output_len = 128;
  double random_range_ratio = 0.0;
  std::string input_len_dist, output_len_dist;
  int32_t random_prefix_len = 0;
  int32_t random_num_prefixes = 1;
  int32_t max_input_len = workload::kMostTokens;
  int32_t max_output_len = workload::kMostTokens;
};

void add_stream_flags(cli::Command app, StreamFlags& flags);

// The streams: one for each of `specs`, whose keys stand over `defaults`; without specs the
// defaults alone. Reads trace and task files.
Result<std::vector<loadgen::LoadStream>> make_streams(const StreamFlags& defaults,
                                                      const std::vector<std::string>& specs);

}  // namespace tandem::bench
