// What a run would be were its hosts' bandwidth somewhat lower or higher: nothing of a simulated
// machine is known less well. Threads: any.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "loadgen/headline.h"

namespace tandem::sim {

struct HostBand {
  double share = 0;                         // 0.2: from 0.8 to 1.2 of the bandwidth; 0: no band
  std::vector<loadgen::Headline> low = {};  // of the run with the lower bandwidth
  std::vector<loadgen::Headline> high = {};
};

// {"share": 0.2, "low": {name: value, ...}, "high": {...}}
nlohmann::ordered_json band_json(const HostBand& band);
// Without the key "share", or with other types: no band.
HostBand read_band(const nlohmann::ordered_json& json);

// A line for each bandwidth, lowest first: its factor, then the columns of summary.csv.
std::string band_csv(const HostBand& band, const std::vector<loadgen::Headline>& nominal);
// The numbers that the host's bandwidth moves, for a terminal.
std::string band_text(const HostBand& band, const std::vector<loadgen::Headline>& nominal);
// The same as a card of a report.
std::string band_card(const HostBand& band, const std::vector<loadgen::Headline>& nominal);

}  // namespace tandem::sim
