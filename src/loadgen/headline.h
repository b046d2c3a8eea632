// The few numbers of a run that are compared with those of other runs: one row of a table, a plot
// each in the report of a sweep. Threads: any.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "loadgen/summary.h"
#include "loadgen/svg_plot.h"

namespace tandem::loadgen {

struct Headline {
  std::string name;             // "ttft_p99_ms", of a class "chat.ttft_p99_ms"
  std::optional<double> value;  // nullopt: the run has no such samples
};

// Of all requests, then of each class where there are several, then of each engine of a simulation
// of several.
std::vector<Headline> headlines_of(const Summary& summary);

// Precedes the names of an engine's headlines: "engine gpu.".
std::string engine_prefix(const std::string& engine);

// How a headline is shown.
struct HeadlineStyle {
  std::string title;  // "TTFT P99"
  Unit unit = Unit::kCount;
  double scale = 1;  // from the value to the unit
};
HeadlineStyle headline_style(const std::string& name);
// "265 ms", "99.5 %"; "–": absent.
std::string headline_text(std::optional<double> value, const HeadlineStyle& style);
// "chat" of "chat.ttft_p99_ms"; empty: of all requests.
std::string headline_class(const std::string& name);

// A line of names and one of values. Absent values are empty.
std::string headline_csv(const std::vector<Headline>& headlines);
// A cell of CSV, in quotes where it needs them.
std::string csv_cell(const std::string& text);
// The shortest text that reads as the same number; empty: absent.
std::string number_text(std::optional<double> value);

}  // namespace tandem::loadgen
