// What the points of a sweep showed, side by side: as CSV, JSON, a table for a terminal and a page
// with a plot for each headline number. Threads: any.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "loadgen/headline.h"
#include "loadgen/report_html.h"
#include "sim/host_band.h"

namespace tandem::sim {

struct SweptPoint {
  std::string name;                 // its folder is points/NAME
  std::vector<std::string> values;  // one for each key
  std::vector<loadgen::Headline> headlines;
  HostBand band = {};
  std::string failure;  // empty: it ran
};

struct Sweep {
  std::string scenario;           // the file's name
  std::string made_by;            // "tandem 0.1.0 (54d7ab1b95b7)"
  std::vector<std::string> keys;  // one or two
  std::vector<SweptPoint> points;
};

// A line for each point: its values, then the columns of summary.csv; empty where a point lacks
// one or did not run.
std::string sweep_csv(const Sweep& sweep);
// The same with other bandwidths of the hosts: for each point with a band a line for each of its
// bandwidths, whose factor follows the values. Empty where no point has a band.
std::string sweep_band_csv(const Sweep& sweep);
nlohmann::ordered_json sweep_json(const Sweep& sweep);
// The numbers that are looked at first.
std::string sweep_text(const Sweep& sweep);
// A band around a line, or a whisker on a bar, is the HostBand of its points. The second key
// makes the lines, unless only its values are numbers: then the first one does.
loadgen::ReportPage sweep_page(const Sweep& sweep);

}  // namespace tandem::sim
