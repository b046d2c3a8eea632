// The plots of a page, each also as a file of its own: SVG with its title, legend and colours.
// Threads: any, one at a time.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "loadgen/svg_plot.h"

namespace tandem::loadgen {

struct LegendEntry {
  int series = 0;
  std::string text;
};

struct PlotText {
  std::string name;   // of the file, without ".svg": letters, digits, '.', '-' and '_' stay
  std::string title;  // of the file's picture
  std::string x;      // what the x axis is, if it does not say so by its units
  std::vector<LegendEntry> legend = {};
};

struct PlotFile {
  std::string name;  // "ttft.svg"
  std::string svg;
};

class PlotBook {
 public:
  // Keeps the plot as a file. Returns the picture for the page.
  std::string place(const Plot& plot, const PlotText& text);
  [[nodiscard]] const std::vector<PlotFile>& files() const { return files_; }

 private:
  std::vector<PlotFile> files_;
};

// The legend for a page; empty with fewer than two entries.
std::string legend_html(const std::vector<LegendEntry>& legend);

// FOLDER/NAME for each; the folder is made. Errors name the file.
Status write_plots(const std::string& folder, const std::vector<PlotFile>& plots);

}  // namespace tandem::loadgen
