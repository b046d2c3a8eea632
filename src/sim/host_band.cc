#include "sim/host_band.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string_view>

#include "base/json_values.h"
#include "loadgen/svg_plot.h"

namespace tandem::sim {
namespace {

using loadgen::Headline;
using Json = nlohmann::ordered_json;

std::optional<double> value_of(const std::vector<Headline>& headlines, const std::string& name) {
  const auto found = std::ranges::find(headlines, name, &Headline::name);
  return found == headlines.end() ? std::nullopt : found->value;
}

// What a reader looks at first: times and rates, not what the load was.
bool is_shown(const std::string& name) {
  constexpr std::array kShown = {"output_tokens_per_s", "attainment",   "ttft_p99_ms",
                                 "tpot_p99_ms",         "compute_busy", "host_busy",
                                 "offloaded_mean"};
  const std::string group = loadgen::headline_class(name);
  const std::string own = name.substr(group.empty() ? 0 : group.size() + 1);
  return std::ranges::count(kShown, own) > 0 || own == "best_effort_output_tokens_per_s";
}

struct Row {
  std::string title;
  std::array<std::string, 3> values;  // low, nominal, high
};

std::vector<Row> rows_of(const HostBand& band, const std::vector<Headline>& nominal) {
  std::vector<Row> rows;
  for (const Headline& headline : nominal) {
    if (!is_shown(headline.name) || !headline.value) {
      continue;
    }
    const loadgen::HeadlineStyle style = loadgen::headline_style(headline.name);
    const std::string group = loadgen::headline_class(headline.name);
    rows.push_back({.title = group.empty() ? style.title : group + ": " + style.title,
                    .values = {headline_text(value_of(band.low, headline.name), style),
                               headline_text(headline.value, style),
                               headline_text(value_of(band.high, headline.name), style)}});
  }
  return rows;
}

Json json_of(const std::vector<Headline>& headlines) {
  Json json = Json::object();
  for (const Headline& headline : headlines) {
    json[headline.name] = headline.value ? Json(*headline.value) : Json();
  }
  return json;
}

std::vector<Headline> read_headlines(const Json& json) {
  std::vector<Headline> headlines;
  for (const auto& [name, value] : json.items()) {
    headlines.push_back({.name = name, .value = json_number(value)});
  }
  return headlines;
}

}  // namespace

Json band_json(const HostBand& band) {
  return {{"share", band.share}, {"low", json_of(band.low)}, {"high", json_of(band.high)}};
}

HostBand read_band(const Json& json) {
  const Json* share = json_member(json, "share");
  const Json* low = json_member(json, "low");
  const Json* high = json_member(json, "high");
  if (share == nullptr || !share->is_number() || low == nullptr || !low->is_object() ||
      high == nullptr || !high->is_object()) {
    return {};
  }
  return {
      .share = share->get<double>(), .low = read_headlines(*low), .high = read_headlines(*high)};
}

std::string band_csv(const HostBand& band, const std::vector<Headline>& nominal) {
  std::string csv = "host_bandwidth_factor";
  for (const Headline& headline : nominal) {
    csv += "," + loadgen::csv_cell(headline.name);
  }
  csv += "\n";
  const std::pair<double, const std::vector<Headline>*> runs[] = {
      {1 - band.share, &band.low}, {1, &nominal}, {1 + band.share, &band.high}};
  for (const auto& [factor, headlines] : runs) {
    csv += fmt::format("{:g}", factor);
    for (const Headline& headline : nominal) {
      csv += "," + loadgen::number_text(value_of(*headlines, headline.name));
    }
    csv += "\n";
  }
  return csv;
}

std::string band_text(const HostBand& band, const std::vector<Headline>& nominal) {
  const std::string percent = fmt::format("{:g} %", band.share * 100);
  std::string text = fmt::format("{:<34} {:>12} {:>12} {:>12}\n", "host bandwidth", "-" + percent,
                                 "as given", "+" + percent);
  for (const Row& row : rows_of(band, nominal)) {
    fmt::format_to(std::back_inserter(text), "{:<34} {:>12} {:>12} {:>12}\n", row.title,
                   row.values[0], row.values[1], row.values[2]);
  }
  return text;
}

std::string band_card(const HostBand& band, const std::vector<Headline>& nominal) {
  std::string html = fmt::format(
      "<section class=\"card\"><div class=\"head\"><h2>With other host bandwidth</h2></div>"
      "<table><tr><th></th><th>−{0:g} %</th><th>as given</th><th>+{0:g} %</th></tr>",
      band.share * 100);
  for (const Row& row : rows_of(band, nominal)) {
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                        loadgen::escaped(row.title), row.values[0], row.values[1], row.values[2]);
  }
  return html + "</table></section>";
}

}  // namespace tandem::sim
