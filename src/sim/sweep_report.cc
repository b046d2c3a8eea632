#include "sim/sweep_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

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

// At the end of each class, or of all requests, by what a reader compares policies.
bool is_looked_at_first(const std::string& column) {
  constexpr std::array kFirst = {"completed",   "output_tokens_per_s", "attainment",
                                 "ttft_p99_ms", "tpot_p99_ms",         "compute_busy"};
  const std::string group = loadgen::headline_class(column);
  return std::ranges::find(kFirst, column.substr(group.empty() ? 0 : group.size() + 1)) !=
         kFirst.end();
}

std::string short_number(std::optional<double> value) {
  if (!value) {
    return "-";
  }
  const double size = std::abs(*value);
  return fmt::format("{:.{}f}", *value,
                     *value == std::round(*value) || size >= 1000 ? 0
                     : size >= 100                                ? 1
                     : size >= 10                                 ? 2
                                                                  : 3);
}

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
  }
  return json;
}

std::string sweep_text(const Sweep& sweep) {
  std::vector<std::string> columns = columns_of(sweep);
  std::erase_if(columns, [&](const std::string& column) {
    return !is_looked_at_first(column) ||
           std::ranges::none_of(sweep.points, [&](const SweptPoint& point) {
             return value_of(point, column).has_value();
           });
  });
  std::vector<std::vector<std::string>> rows(1, sweep.keys);
  rows.front().insert(rows.front().end(), columns.begin(), columns.end());
  for (const SweptPoint& point : sweep.points) {
    std::vector<std::string>& row = rows.emplace_back(point.values);
    for (const std::string& column : columns) {
      row.push_back(point.failure.empty() ? short_number(value_of(point, column)) : "failed");
    }
  }
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += i < sweep.keys.size() ? fmt::format("{:<{}}", row[i], widths[i] + 2)
                                    : fmt::format("{:>{}}", row[i], widths[i] + 2);
    }
    text += "\n";
  }
  return text;
}

}  // namespace tandem::sim
