#include "sim/sweep_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "base/utf8.h"

namespace tandem::sim {
namespace {

using loadgen::Headline;

std::optional<double> value_of(const SweptPoint& point, const std::string& column) {
  const auto found = std::ranges::find(point.headlines, column, &Headline::name);
  return found == point.headlines.end() ? std::nullopt : found->value;
}

// Of all points; those of the first one come first.
std::vector<std::string> columns_of(const Sweep& sweep) {
  std::vector<std::string> columns;
  for (const SweptPoint& point : sweep.points) {
    for (const Headline& headline : point.headlines) {
      if (std::ranges::find(columns, headline.name) == columns.end()) {
        columns.push_back(headline.name);
      }
    }
  }
  return columns;
}

bool is_shown(const Sweep& sweep, const std::string& column) {
  return std::ranges::any_of(
      sweep.points, [&](const SweptPoint& point) { return value_of(point, column).has_value(); });
}

// What policies are compared by: of each class where there are several, else of all requests.
std::vector<std::string> first_columns(const Sweep& sweep) {
  std::vector<std::string> columns = columns_of(sweep);
  const bool has_classes = std::ranges::any_of(
      columns, [](const std::string& column) { return !loadgen::headline_class(column).empty(); });
  std::erase_if(columns, [&](const std::string& column) {
    const std::string group = loadgen::headline_class(column);
    const std::string name = column.substr(group.empty() ? 0 : group.size() + 1);
    constexpr std::array kOfAll = {"completed", "compute_busy", "offloaded_tokens_per_step"};
    constexpr std::array kOfClass = {"output_tokens_per_s", "attainment", "ttft_p99_ms",
                                     "tpot_p99_ms"};
    const bool wanted = (group.empty() && std::ranges::count(kOfAll, name) > 0) ||
                        (group.empty() != has_classes && std::ranges::count(kOfClass, name) > 0);
    return !wanted || !is_shown(sweep, column);
  });
  return columns;
}

// As far as a terminal's columns go: a sign of several bytes takes one.
size_t width_of(const std::string& text) { return static_cast<size_t>(count_chars(text)); }

}  // namespace

std::string sweep_csv(const Sweep& sweep) {
  const std::vector<std::string> columns = columns_of(sweep);
  std::string csv;
  for (const std::string& key : sweep.keys) {
    csv += (csv.empty() ? "" : ",") + loadgen::csv_cell(key);
  }
  for (const std::string& column : columns) {
    csv += "," + loadgen::csv_cell(column);
  }
  csv += "\n";
  for (const SweptPoint& point : sweep.points) {
    std::string line;
    for (const std::string& value : point.values) {
      line += (line.empty() ? "" : ",") + loadgen::csv_cell(value);
    }
    for (const std::string& column : columns) {
      line += "," + loadgen::number_text(value_of(point, column));
    }
    csv += line + "\n";
  }
  return csv;
}

std::string sweep_band_csv(const Sweep& sweep) {
  const std::vector<std::string> columns = columns_of(sweep);
  std::string csv;
  for (const SweptPoint& point : sweep.points) {
    if (point.band.share <= 0) {
      continue;
    }
    std::string values;
    for (const std::string& value : point.values) {
      values += loadgen::csv_cell(value) + ",";
    }
    std::vector<Headline> all;
    for (const std::string& column : columns) {
      all.push_back({.name = column, .value = value_of(point, column)});
    }
    const std::string lines = band_csv(point.band, all);
    for (size_t at = lines.find('\n') + 1; at < lines.size();) {
      const size_t end = lines.find('\n', at) + 1;
      csv += values + lines.substr(at, end - at);
      at = end;
    }
  }
  if (csv.empty()) {
    return {};
  }
  std::string header;
  for (const std::string& key : sweep.keys) {
    header += loadgen::csv_cell(key) + ",";
  }
  header += "host_bandwidth_factor";
  for (const std::string& column : columns) {
    header += "," + loadgen::csv_cell(column);
  }
  return header + "\n" + csv;
}

nlohmann::ordered_json sweep_json(const Sweep& sweep) {
  nlohmann::ordered_json json;
  json["schema"] = 1;
  json["made_by"] = sweep.made_by;
  json["scenario"] = sweep.scenario;
  json["vary"] = sweep.keys;
  json["points"] = nlohmann::ordered_json::array();
  for (const SweptPoint& point : sweep.points) {
    nlohmann::ordered_json& entry = json["points"].emplace_back();
    entry["name"] = point.name;
    entry["folder"] = "points/" + point.name;
    for (size_t i = 0; i < sweep.keys.size(); ++i) {
      entry["values"][sweep.keys[i]] = point.values[i];
    }
    if (!point.failure.empty()) {
      entry["failure"] = point.failure;
      continue;
    }
    for (const Headline& headline : point.headlines) {
      entry["headline"][headline.name] =
          headline.value ? nlohmann::ordered_json(*headline.value) : nlohmann::ordered_json();
    }
    if (point.band.share > 0) {
      entry["host_band"] = band_json(point.band);
    }
  }
  return json;
}

std::string sweep_text(const Sweep& sweep) {
  const std::vector<std::string> columns = first_columns(sweep);
  std::vector<std::string> classes(sweep.keys.size());
  std::vector<std::string> titles = sweep.keys;
  for (const std::string& column : columns) {
    classes.push_back(loadgen::headline_class(column));
    titles.push_back(loadgen::headline_style(column).title);
  }
  std::vector<std::vector<std::string>> rows = {classes, titles};
  for (const SweptPoint& point : sweep.points) {
    std::vector<std::string>& row = rows.emplace_back(point.values);
    for (const std::string& column : columns) {
      row.push_back(point.failure.empty() ? loadgen::headline_text(value_of(point, column),
                                                                   loadgen::headline_style(column))
                                          : "failed");
    }
  }
  if (std::ranges::all_of(classes, &std::string::empty)) {
    rows.erase(rows.begin());
  }
  std::vector<size_t> widths(titles.size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - width_of(row[i]), ' ');
      line += (i == 0 ? "" : "  ") + (i < sweep.keys.size() ? row[i] + pad : pad + row[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace tandem::sim
