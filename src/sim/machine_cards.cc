#include "sim/machine_cards.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "loadgen/plot_book.h"
#include "loadgen/svg_plot.h"
#include "sim/machine_report.h"

namespace tandem::sim {
namespace {

using loadgen::Axis;
using loadgen::LegendEntry;
using loadgen::Plot;
using loadgen::PlotBook;
using loadgen::Point;
using loadgen::Scale;
using loadgen::Unit;

constexpr loadgen::PlotSize kWide{1080, 150};
constexpr loadgen::PlotSize kSquare{520, 300};

// One line of a plot over time.
struct Curve {
  std::string title;
  std::function<double(const MachineSlice&, double seconds)> value;
};

struct TimePlot {
  std::string name;
  std::string title;
  Unit unit = Unit::kCount;
  double full = 0;  // the axis ends there; 0: over the highest value
  std::vector<Curve> curves;
};

double mean_of(const MachineSlice& slice, int64_t sum) {
  return static_cast<double>(sum) / static_cast<double>(std::max<int64_t>(slice.looks, 1));
}

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

std::string time_plot(const MachineLog& log, const TimePlot& what, PlotBook& book) {
  const double length = to_seconds(log.slice_time());
  const double end = length * static_cast<double>(log.slices().size());
  std::vector<std::vector<Point>> lines;
  std::vector<LegendEntry> legend;
  double highest = 0;
  for (const Curve& curve : what.curves) {
    legend.push_back({static_cast<int>(legend.size()), curve.title});
    std::vector<Point>& line = lines.emplace_back();
    for (const MachineSlice& slice : log.slices()) {
      line.push_back({static_cast<double>(line.size()) * length,
                      curve.value(slice, log.slice_seconds(line.size()))});
      highest = std::max(highest, line.back().y);
    }
  }
  Plot plot(kWide, {Scale::kLinear, Unit::kSeconds, 0, end},
            loadgen::axis_from_zero(what.full > 0 ? what.full : highest, what.unit),
            what.title + " over time");
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i == 0) {
      plot.area(lines[i], end, 0);
    } else {
      plot.steps(lines[i], end, static_cast<int>(i));
    }
  }
  for (size_t slice = 0; slice < log.slices().size(); ++slice) {
    std::string text = fmt::format("{:g} s:", static_cast<double>(slice) * length);
    for (size_t i = 0; i < lines.size(); ++i) {
      text += fmt::format(" {} {:.3g}{}", what.curves[i].title, lines[i][slice].y,
                          i + 1 < lines.size() ? "," : "");
    }
    plot.hint(static_cast<double>(slice) * length, static_cast<double>(slice + 1) * length, text);
  }
  return fmt::format(
      "<div class=\"head\"><p class=\"note\">{}</p>{}</div>{}", what.title, legend_html(legend),
      book.place(plot, {.name = what.name, .title = what.title, .x = "", .legend = legend}));
}

std::vector<TimePlot> time_plots(const MachineLog& log) {
  const bool host = log.host_blocks() > 0;
  const double layers = std::max(log.layers(), 1);
  TimePlot prompts{.name = "machine-prompts", .title = "prompt tokens a second", .curves = {}};
  prompts.curves = {{"prompts", [](const MachineSlice& s, double seconds) {
                       return static_cast<double>(s.prompt_tokens) / seconds;
                     }}};
  TimePlot decodes{.name = "machine-decodes", .title = "decoded tokens a second", .curves = {}};
  decodes.curves = {{"on the accelerator", [](const MachineSlice& s, double seconds) {
                       return static_cast<double>(s.decode_tokens) / seconds;
                     }}};
  TimePlot sequences{.name = "machine-sequences", .title = "sequences", .curves = {}};
  sequences.curves = {
      {"running", [](const MachineSlice& s, double) { return mean_of(s, s.running); }},
      {"waiting", [](const MachineSlice& s, double) { return mean_of(s, s.waiting); }}};
  TimePlot memory{.name = "machine-kv",
                  .title = "KV memory in use",
                  .unit = Unit::kPercent,
                  .full = 100,
                  .curves = {}};
  memory.curves = {{"accelerator", [blocks = log.blocks()](const MachineSlice& s, double) {
                      return percent(mean_of(s, s.blocks), static_cast<double>(blocks));
                    }}};
  TimePlot busy{.name = "machine-busy",
                .title = "share of the time that each side works",
                .unit = Unit::kPercent,
                .full = 100,
                .curves = {}};
  const auto share = [](Nanos time, double seconds) { return percent(to_seconds(time), seconds); };
  busy.curves = {{"accelerator", [share](const MachineSlice& s, double seconds) {
                    return share(s.busy.accelerator, seconds);
                  }}};
  if (host) {
    decodes.curves.push_back({"on the host", [layers](const MachineSlice& s, double seconds) {
                                return static_cast<double>(s.hops) / layers / seconds;
                              }});
    sequences.curves.push_back(
        {"offloaded", [](const MachineSlice& s, double) { return mean_of(s, s.offloaded); }});
    memory.curves.push_back({"host", [blocks = log.host_blocks()](const MachineSlice& s, double) {
                               return percent(mean_of(s, s.host_blocks),
                                              static_cast<double>(blocks));
                             }});
    busy.curves.push_back({"host", [share](const MachineSlice& s, double seconds) {
                             return share(s.busy.host, seconds);
                           }});
    busy.curves.push_back(
        {"host while the accelerator is idle", [share](const MachineSlice& s, double seconds) {
           return share(s.busy.host - s.busy.both, seconds);
         }});
  }
  return {std::move(prompts), std::move(decodes), std::move(sequences), std::move(memory),
          std::move(busy)};
}

// A bar whose parts are shares of the whole, with their names below.
std::string share_bar(const std::string& title,
                      const std::vector<std::pair<std::string, double>>& shares) {
  std::string bar;
  std::string legend;
  for (size_t i = 0; i < shares.size(); ++i) {
    const auto& [name, share] = shares[i];
    if (share >= 0.0005) {
      bar += fmt::format("<i class=\"c{}\" style=\"width:{:.2f}%\"></i>", i, share * 100);
      legend += fmt::format("<span><i class=\"c{}\"></i>{} {:.1f} %</span>", i, name, share * 100);
    }
  }
  return fmt::format(
      "<p class=\"note\">{}</p><div class=\"shares\">{}</div><div class=\"legend\">{}"
      "</div>",
      title, bar, legend);
}

std::string sides_card(const MachineLog& log) {
  const BusyTimes& busy = log.busy();
  const double both = share_of(log, busy.both);
  const double accelerator = share_of(log, busy.accelerator - busy.both);
  const double host = share_of(log, busy.host - busy.both);
  std::string html =
      "<section class=\"card\"><div class=\"head\"><h2>Busy sides and limits</h2></div>";
  html += share_bar("time of the run", {{"both sides work", both},
                                        {"accelerator alone", accelerator},
                                        {"host alone", host},
                                        {"none", std::max(0.0, 1 - both - accelerator - host)}});
  std::vector<std::pair<std::string, double>> limits;
  for (size_t i = 0; i < kLimitNames.size(); ++i) {
    std::string name = kLimitNames[i];
    std::ranges::replace(name, '_', ' ');
    limits.emplace_back(std::move(name), share_of(log, log.regimes()[i]));
  }
  html += share_bar("what limits the decoding of offloaded sequences, time of the run", limits);
  std::vector<std::pair<std::string, double>> modes;
  Nanos steps{0};
  for (const auto& [name, mode] : log.modes()) {
    steps += mode.time;
  }
  for (const char* name : kModeNames) {
    const auto mode = log.modes().find(std::string_view(name));
    const bool known = mode != log.modes().end() && steps > Nanos{0};
    modes.emplace_back(std::string_view(name) == "visitors" ? "visitors alone" : name,
                       known ? to_seconds(mode->second.time) / to_seconds(steps) : 0);
  }
  html += share_bar("how offloaded sequences joined steps, time of steps", modes);
  return html + fmt::format(
                    "<p class=\"note\">{:.1f} sequences were offloaded in the mean, at most "
                    "{}.</p></section>",
                    log.mean_offloaded(), log.max_offloaded());
}

std::string prediction_card(const MachineLog& log, PlotBook& book) {
  double low = 0;
  double high = 0;
  for (const auto& [name, steps] : log.predictions()) {
    for (const PredictedStep& step : steps) {
      const double a = to_millis(std::min(step.predicted, step.actual));
      const double b = to_millis(std::max(step.predicted, step.actual));
      low = low == 0 ? a : std::min(low, a);
      high = std::max(high, b);
    }
  }
  if (!(high > 0)) {
    return {};
  }
  const Axis axis = loadgen::log_axis(low, high, Unit::kMillis);
  Plot plot(kSquare, axis, axis, "Actual over predicted step time");
  plot.diagonal();
  std::vector<LegendEntry> legend;
  for (const auto& [name, steps] : log.predictions()) {
    std::vector<Point> dots;
    for (const PredictedStep& step : steps) {
      dots.push_back({to_millis(step.predicted), to_millis(step.actual)});
    }
    plot.dots(dots, static_cast<int>(legend.size()));
    legend.push_back({static_cast<int>(legend.size()), name});
  }
  return fmt::format(
      "<section class=\"card\"><div class=\"head\"><h2>Step time: actual over predicted</h2>{}"
      "</div>{}<p class=\"note\">On the dashed line a step took what was predicted. {:.1f} % off "
      "in "
      "the mean.</p></section>",
      legend_html(legend),
      book.place(plot, {.name = "predicted-steps",
                        .title = "Step time: actual over predicted",
                        .x = "predicted",
                        .legend = legend}),
      step_time_error(log).value_or(0) * 100);
}

}  // namespace

loadgen::ReportPage machine_cards(const MachineLog& log) {
  if (log.slices().empty()) {
    return {};
  }
  PlotBook book;
  std::string html =
      "<section class=\"card\"><div class=\"head\"><h2>The machine over time</h2></div>";
  for (const TimePlot& what : time_plots(log)) {
    html += time_plot(log, what, book);
  }
  html += "</section>";
  const std::string sides = log.host_blocks() > 0 ? sides_card(log) : "";
  const std::string predictions = prediction_card(log, book);
  if (!sides.empty() || !predictions.empty()) {
    html += fmt::format("<div class=\"two\">{}{}</div>", predictions, sides);
  }
  return {.html = std::move(html), .plots = book.files()};
}

}  // namespace tandem::sim
