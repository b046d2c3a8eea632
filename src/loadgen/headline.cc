#include "loadgen/headline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace tandem::loadgen {
namespace {

struct NamedStyle {
  std::string_view name;
  std::string_view title;
  Unit unit = Unit::kCount;
  double scale = 1;
};

constexpr std::array kStyles = {
    NamedStyle{"requests", "Requests"},
    NamedStyle{"completed", "Completed"},
    NamedStyle{"failed", "Failed"},
    NamedStyle{"unfinished", "Unfinished"},
    NamedStyle{"duration_s", "Simulated time", Unit::kSeconds},
    NamedStyle{"requests_per_s", "Requests/s"},
    NamedStyle{"prompt_tokens_per_s", "Prompt tokens/s"},
    NamedStyle{"output_tokens_per_s", "Output tokens/s"},
    NamedStyle{"attainment", "In target", Unit::kPercent, 100},
    NamedStyle{"ttft_p50_ms", "TTFT P50", Unit::kMillis},
    NamedStyle{"ttft_p99_ms", "TTFT P99", Unit::kMillis},
    NamedStyle{"tpot_p50_ms", "TPOT P50", Unit::kMillis},
    NamedStyle{"tpot_p99_ms", "TPOT P99", Unit::kMillis},
    NamedStyle{"tbt_p99_ms", "TBT P99", Unit::kMillis},
    NamedStyle{"steps", "Engine steps"},
    NamedStyle{"compute_busy", "Accelerator busy", Unit::kPercent, 100},
    NamedStyle{"hops", "Hops to the host"},
    NamedStyle{"offloaded_tokens_per_step", "Offloaded tokens a step"},
    NamedStyle{"best_effort_prompt_tokens_per_s", "Best-effort prompt tokens/s"},
    NamedStyle{"best_effort_output_tokens_per_s", "Best-effort output tokens/s"},
    NamedStyle{"offloaded_mean", "Offloaded sequences"},
    NamedStyle{"host_busy", "Host busy", Unit::kPercent, 100},
    NamedStyle{"accelerator_bubble", "Accelerator idle, host works", Unit::kPercent, 100},
    NamedStyle{"host_bubble", "Host idle, accelerator works", Unit::kPercent, 100},
    NamedStyle{"limited_by_host_memory", "Limited by host memory", Unit::kPercent, 100},
    NamedStyle{"limited_by_host_bandwidth", "Limited by host bandwidth", Unit::kPercent, 100},
    NamedStyle{"limited_by_link", "Limited by the link", Unit::kPercent, 100},
    NamedStyle{"limited_by_device", "Limited by the accelerator", Unit::kPercent, 100},
    NamedStyle{"limited_by_nothing_offloaded", "Nothing offloaded", Unit::kPercent, 100},
    NamedStyle{"mode_resident", "Steps of residents alone", Unit::kPercent, 100},
    NamedStyle{"mode_piggyback", "Piggyback steps", Unit::kPercent, 100},
    NamedStyle{"mode_overlap", "Overlap steps", Unit::kPercent, 100},
    NamedStyle{"mode_lanes", "Steps with lanes", Unit::kPercent, 100},
    NamedStyle{"mode_visitors", "Steps of visitors alone", Unit::kPercent, 100},
    NamedStyle{"mode_changes", "Changes between lanes and none"},
    NamedStyle{"lane_moves", "Tokens that changed lanes"},
    NamedStyle{"let_in", "Tokens begun although held"},
    NamedStyle{"straight_to_host", "Prompts straight to the host"},
    NamedStyle{"inequality_rate_ratio", "Accelerator's attention rate over the host's"},
    NamedStyle{"inequality_bound", "Ratio below which lanes pay"},
    NamedStyle{"inequality_held", "Steps in which lanes pay", Unit::kPercent, 100},
    NamedStyle{"step_time_error", "Step time error", Unit::kPercent, 100},
};

std::optional<double> at(const Distribution& values, double percent) {
  return values.count() == 0 ? std::nullopt : std::optional(values.at(percent));
}

void add_group(const GroupSummary& group, const Summary& summary, const std::string& prefix,
               std::vector<Headline>& headlines) {
  const auto add = [&](const char* name, std::optional<double> value) {
    headlines.push_back({.name = prefix + name, .value = value});
  };
  add("requests", static_cast<double>(group.planned));
  add("completed", static_cast<double>(group.done));
  add("failed", static_cast<double>(group.failed));
  add("unfinished", static_cast<double>(group.planned - group.done - group.failed));
  if (prefix.empty()) {
    add("duration_s", summary.duration_s);
  }
  add("requests_per_s", summary.per_second(group.done));
  add("prompt_tokens_per_s", summary.per_second(group.input_tokens));
  add("output_tokens_per_s", summary.per_second(group.output_tokens));
  const std::optional<double> percent = group.attainment_percent();
  add("attainment", percent ? std::optional(*percent / 100) : std::nullopt);
  add("ttft_p50_ms", at(group.ttft, 50));
  add("ttft_p99_ms", at(group.ttft, 99));
  add("tpot_p50_ms", at(group.tpot, 50));
  add("tpot_p99_ms", at(group.tpot, 99));
  add("tbt_p99_ms", at(group.itl, 99));
}

}  // namespace

std::vector<Headline> headlines_of(const Summary& summary) {
  std::vector<Headline> headlines;
  add_group(summary.all, summary, "", headlines);
  for (const GroupSummary& group : summary.groups) {
    if (summary.groups.size() > 1) {
      add_group(group, summary, group.name + ".", headlines);
    }
  }
  for (const GroupSummary& engine : summary.models) {
    if (summary.models_are_engines) {
      add_group(engine, summary, engine_prefix(engine.name), headlines);
    }
  }
  return headlines;
}

std::string engine_prefix(const std::string& engine) { return fmt::format("engine {}.", engine); }

HeadlineStyle headline_style(const std::string& name) {
  const size_t dot = name.rfind('.');
  const std::string own = dot == std::string::npos ? name : name.substr(dot + 1);
  const auto* const known = std::ranges::find(kStyles, own, &NamedStyle::name);
  if (known == kStyles.end()) {
    return {.title = own};
  }
  return {.title = std::string(known->title), .unit = known->unit, .scale = known->scale};
}

std::string headline_text(std::optional<double> value, const HeadlineStyle& style) {
  if (!value) {
    return "–";
  }
  switch (style.unit) {
    case Unit::kMillis:
      return short_millis(*value);
    case Unit::kPercent:
      return fmt::format("{:.1f} %", *value * style.scale);
    case Unit::kSeconds:
      return fmt::format("{:.1f} s", *value);
    case Unit::kCount:
      return short_count(*value);
  }
  return {};
}

std::string headline_class(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

std::string headline_csv(const std::vector<Headline>& headlines) {
  std::string names;
  std::string values;
  for (const Headline& headline : headlines) {
    names += (names.empty() ? "" : ",") + csv_cell(headline.name);
    values += (&headline == headlines.data() ? "" : ",") + number_text(headline.value);
  }
  return names + "\n" + values + "\n";
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return text;
  }
  std::string out = "\"";
  for (const char c : text) {
    out += c == '"' ? "\"\"" : std::string(1, c);
  }
  return out + '"';
}

std::string number_text(std::optional<double> value) {
  return value && std::isfinite(*value) ? fmt::format("{}", *value) : "";
}

}  // namespace tandem::loadgen
