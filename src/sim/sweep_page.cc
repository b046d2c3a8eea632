// The page of a sweep.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "loadgen/plot_book.h"
#include "loadgen/report_plots.h"
#include "loadgen/report_style.h"
#include "loadgen/svg_plot.h"
#include "sim/sweep_report.h"

namespace tandem::sim {
namespace {

using loadgen::Axis;
using loadgen::escaped;
using loadgen::Headline;
using loadgen::Plot;
using loadgen::Point;
using loadgen::Scale;

std::optional<double> number_of(const std::string& text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && stop == end && std::isfinite(number) ? std::optional(number)
                                                                      : std::nullopt;
}

std::vector<std::string> values_of(const Sweep& sweep, size_t key) {
  std::vector<std::string> values;
  for (const SweptPoint& point : sweep.points) {
    if (std::ranges::find(values, point.values[key]) == values.end()) {
      values.push_back(point.values[key]);
    }
  }
  return values;
}

bool are_numbers(const std::vector<std::string>& values) {
  return std::ranges::all_of(values,
                             [](const std::string& text) { return number_of(text).has_value(); });
}

// Which key runs along the plots, and which one makes their lines.
struct Layout {
  size_t along = 0;
  std::optional<size_t> lines;
  std::vector<std::string> along_values;
  std::vector<std::string> line_values;  // one, empty, without a second key
  bool numeric = false;
};

Layout layout_of(const Sweep& sweep) {
  Layout layout;
  layout.along_values = values_of(sweep, 0);
  layout.line_values = {""};
  if (sweep.keys.size() > 1) {
    layout.lines = 1;
    layout.line_values = values_of(sweep, 1);
    if (!are_numbers(layout.along_values) && are_numbers(layout.line_values)) {
      layout.along = 1;
      layout.lines = 0;
      std::swap(layout.along_values, layout.line_values);
    }
  }
  layout.numeric = are_numbers(layout.along_values);
  return layout;
}

Axis along_axis(const Layout& layout) {
  Axis axis;
  if (!layout.numeric) {
    axis.low = -0.5;
    axis.high = static_cast<double>(layout.along_values.size()) - 0.5;
    for (const std::string& value : layout.along_values) {
      axis.labels.push_back({.at = static_cast<double>(axis.labels.size()), .text = value});
    }
    return axis;
  }
  for (const std::string& value : layout.along_values) {
    axis.labels.push_back({.at = *number_of(value), .text = value});
  }
  std::ranges::sort(axis.labels, {}, &loadgen::AxisLabel::at);
  const double low = axis.labels.front().at;
  const double high = axis.labels.back().at;
  constexpr double kDecades = 20;  // from this ratio on
  if (low > 0 && high / low >= kDecades) {
    const double margin = std::pow(high / low, 0.04);
    axis.scale = Scale::kLog;
    axis.low = low / margin;
    axis.high = high * margin;
  } else {
    const double margin = high > low ? (high - low) * 0.04 : std::max(std::abs(high), 1.0) * 0.5;
    axis.low = low - margin;
    axis.high = high + margin;
  }
  return axis;
}

// A point of a line, and how far it would be from there with other bandwidths of the hosts.
struct Mark {
  double x = 0;
  double y = 0;
  double low = 0;
  double high = 0;
};

std::optional<double> value_in(const std::vector<Headline>& headlines, const std::string& column) {
  const auto found = std::ranges::find(headlines, column, &Headline::name);
  return found == headlines.end() ? std::nullopt : found->value;
}

// The marks of one line: places along the axis and values, in the axis' order.
std::vector<Mark> marks_of(const Sweep& sweep, const Layout& layout, const std::string& line,
                           const std::string& column) {
  const double scale = loadgen::headline_style(column).scale;
  std::vector<Mark> marks;
  for (const SweptPoint& point : sweep.points) {
    const std::optional<double> value = value_in(point.headlines, column);
    if ((layout.lines && point.values[*layout.lines] != line) || !value) {
      continue;
    }
    const std::string& at = point.values[layout.along];
    const auto place = std::ranges::find(layout.along_values, at) - layout.along_values.begin();
    const double lower = value_in(point.band.low, column).value_or(*value);
    const double upper = value_in(point.band.high, column).value_or(*value);
    marks.push_back({.x = layout.numeric ? *number_of(at) : static_cast<double>(place),
                     .y = *value * scale,
                     .low = std::min({lower, *value, upper}) * scale,
                     .high = std::max({lower, *value, upper}) * scale});
  }
  std::ranges::sort(marks, {}, &Mark::x);
  return marks;
}

std::vector<Point> points_of(const std::vector<Mark>& marks, double Mark::*value) {
  std::vector<Point> points;
  for (const Mark& mark : marks) {
    points.push_back({mark.x, mark.*value});
  }
  return points;
}

void draw(const std::vector<Mark>& marks, const Layout& layout, size_t line, Plot& plot) {
  const int series = std::max(loadgen::series_of(line, layout.line_values.size()), 0);
  const bool banded =
      std::ranges::any_of(marks, [](const Mark& mark) { return mark.low < mark.high; });
  if (layout.numeric) {
    if (banded) {
      plot.band(points_of(marks, &Mark::low), points_of(marks, &Mark::high), series);
    }
    plot.line(points_of(marks, &Mark::y), series);
    plot.dots(points_of(marks, &Mark::y), series);
    return;
  }
  constexpr double kShare = 0.7;  // of a value's room that its bars take
  const double width = kShare / static_cast<double>(layout.line_values.size());
  for (const Mark& mark : marks) {
    const double begin = mark.x - kShare / 2 + width * static_cast<double>(line);
    plot.bar(begin, begin + width * 0.95, mark.y, series);
    if (banded) {
      plot.whisker(begin + width * 0.475, mark.low, mark.high);
    }
  }
}

// What a load is or how long it took is no result: the tables have it.
bool is_plotted(const std::string& column) {
  const std::string title = loadgen::headline_style(column).title;
  constexpr std::array kOnlyInTables = {"Requests", "Completed", "Simulated time", "Engine steps"};
  return std::ranges::count(kOnlyInTables, title) == 0;
}

std::vector<loadgen::LegendEntry> legend_of(const Layout& layout) {
  std::vector<loadgen::LegendEntry> legend;
  for (size_t i = 0; layout.lines && i < layout.line_values.size(); ++i) {
    legend.push_back(
        {std::max(loadgen::series_of(i, layout.line_values.size()), 0), layout.line_values[i]});
  }
  return legend;
}

// Empty when no point has the number, or all have none of it.
std::string plot_card(const Sweep& sweep, const Layout& layout, const std::string& column,
                      loadgen::PlotBook& book) {
  const loadgen::HeadlineStyle style = loadgen::headline_style(column);
  std::vector<std::vector<Mark>> lines;
  double highest = 0;
  for (const std::string& line : layout.line_values) {
    lines.push_back(marks_of(sweep, layout, line, column));
    for (const Mark& mark : lines.back()) {
      highest = std::max(highest, mark.high);
    }
  }
  if (highest <= 0) {
    return {};
  }
  const bool share = style.unit == loadgen::Unit::kPercent && column != "step_time_error";
  const std::string group = loadgen::headline_class(column);
  Plot plot({.width = 350, .height = 220}, along_axis(layout),
            loadgen::axis_from_zero(share ? std::max(highest, 100.0) : highest * 1.05, style.unit),
            fmt::format("{} over {}", style.title, sweep.keys[layout.along]));
  for (size_t i = 0; i < lines.size(); ++i) {
    draw(lines[i], layout, i, plot);
  }
  return fmt::format(
      "<section class=\"card\"><div class=\"head\"><h2>{}</h2></div>{}<p class=\"note\" "
      "style=\"text-align:center\">{}</p></section>",
      escaped(style.title),
      book.place(plot, {.name = column,
                        .title = group.empty() ? style.title : group + ": " + style.title,
                        .x = sweep.keys[layout.along],
                        .legend = legend_of(layout)}),
      escaped(sweep.keys[layout.along]));
}

std::string legend(const Sweep& sweep, const Layout& layout) {
  if (!layout.lines) {
    return {};
  }
  std::string html =
      fmt::format("<div class=\"legend\"><span>{}:</span>", escaped(sweep.keys[*layout.lines]));
  for (const loadgen::LegendEntry& entry : legend_of(layout)) {
    html += fmt::format("<span><i class=\"c{}\"></i>{}</span>", entry.series, escaped(entry.text));
  }
  return html + "</div>";
}

bool is_of_machine(const std::string& column) {
  constexpr std::array kOfMachine = {"steps",
                                     "step_time_error",
                                     "compute_busy",
                                     "hops",
                                     "offloaded_tokens_per_step",
                                     "best_effort_prompt_tokens_per_s",
                                     "best_effort_output_tokens_per_s",
                                     "offloaded_mean",
                                     "host_busy",
                                     "accelerator_bubble",
                                     "host_bubble"};
  return std::ranges::count(kOfMachine, column) > 0 || column.starts_with("limited_by_") ||
         column.starts_with("mode_") || column.starts_with("inequality_");
}

// The columns of each class, in the order of the columns; those of the machine come last.
std::vector<std::pair<std::string, std::vector<std::string>>> sections_of(const Sweep& sweep) {
  std::vector<std::pair<std::string, std::vector<std::string>>> sections;
  std::vector<std::string> machine;
  for (const SweptPoint& point : sweep.points) {
    for (const Headline& headline : point.headlines) {
      const std::string group = loadgen::headline_class(headline.name);
      std::vector<std::string>* columns = &machine;
      if (!is_of_machine(headline.name)) {
        auto section =
            std::ranges::find(sections, group, [](const auto& one) { return one.first; });
        if (section == sections.end()) {
          section = sections.insert(section, {group, {}});
        }
        columns = &section->second;
      }
      if (std::ranges::find(*columns, headline.name) == columns->end()) {
        columns->push_back(headline.name);
      }
    }
  }
  for (auto& [group, columns] : sections) {
    group = group.empty() ? "All requests" : fmt::format("Class {}", group);
  }
  sections.emplace_back("Machine", machine);
  return sections;
}

std::string table(const Sweep& sweep, const std::vector<std::string>& columns) {
  std::string html = "<div class=\"scroll\"><table class=\"dense\"><tr>";
  for (const std::string& key : sweep.keys) {
    html += fmt::format("<th style=\"text-align:left\">{}</th>", escaped(key));
  }
  for (const std::string& column : columns) {
    html += fmt::format("<th>{}</th>", escaped(loadgen::headline_style(column).title));
  }
  html += "</tr>";
  for (const SweptPoint& point : sweep.points) {
    html += "<tr>";
    for (size_t i = 0; i < point.values.size(); ++i) {
      html += i == 0 && point.failure.empty()
                  ? fmt::format("<td><a href=\"points/{}/report.html\">{}</a></td>",
                                escaped(point.name), escaped(point.values[i]))
                  : fmt::format("<td style=\"text-align:left\">{}</td>", escaped(point.values[i]));
    }
    for (const std::string& column : columns) {
      const auto found = std::ranges::find(point.headlines, column, &Headline::name);
      html += fmt::format(
          "<td>{}</td>",
          loadgen::headline_text(found == point.headlines.end() ? std::nullopt : found->value,
                                 loadgen::headline_style(column)));
    }
    html += "</tr>";
  }
  return html + "</table></div>";
}

std::string band_note(const Sweep& sweep) {
  const auto banded = std::ranges::find_if(
      sweep.points, [](const SweptPoint& point) { return point.band.share > 0; });
  return banded == sweep.points.end()
             ? std::string()
             : fmt::format(" Bands and whiskers: from {:g} to {:g} times the hosts' bandwidth.",
                           1 - banded->band.share, 1 + banded->band.share);
}

std::string failures(const Sweep& sweep) {
  std::string html;
  for (const SweptPoint& point : sweep.points) {
    if (!point.failure.empty()) {
      html += fmt::format("<p>{}: {}</p>", escaped(point.name), escaped(point.failure));
    }
  }
  return html.empty() ? html : fmt::format("<section class=\"warn\">{}</section>", html);
}

}  // namespace

loadgen::ReportPage sweep_page(const Sweep& sweep) {
  loadgen::PlotBook book;
  const Layout layout = layout_of(sweep);
  const auto ran = std::ranges::count(sweep.points, std::string(), &SweptPoint::failure);
  std::string varied = escaped(sweep.keys.front());
  if (sweep.keys.size() > 1) {
    varied += " and " + escaped(sweep.keys.back());
  }
  std::string html = fmt::format(
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>Sweep of {0}</title><style>{1}"
      "</style></head><body class=\"sweep\"><main><header><h1>Sweep of {0}</h1><p class=\"sub\">{2}"
      " · simulated · {3} of {4} points ran</p></header>{5}",
      varied, loadgen::kReportStyle, escaped(sweep.scenario), ran, sweep.points.size(),
      failures(sweep));
  for (const auto& [title, columns] : sections_of(sweep)) {
    html += fmt::format(
        "<section class=\"card\"><div class=\"head\"><h2>{}</h2>{}</div>{}</section>"
        "<div class=\"three\">",
        escaped(title), legend(sweep, layout), table(sweep, columns));
    for (const std::string& column : columns) {
      html += is_plotted(column) ? plot_card(sweep, layout, column, book) : "";
    }
    html += "</div>";
  }
  html += fmt::format(
      "<footer>Made by {}. Each point's report opens by its first value; sweep.csv has all "
      "numbers, "
      "plots/ the plots as SVG.{}</footer></main></body></html>\n",
      escaped(sweep.made_by), band_note(sweep));
  return {.html = std::move(html), .plots = book.files()};
}

}  // namespace tandem::sim
