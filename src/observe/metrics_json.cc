#include "observe/metrics_json.h"

#include <nlohmann/json.hpp>
#include <string_view>

namespace tandem::observe {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPrefix = "tandem_";

// nlohmann writes numbers that are not finite as null.
void put_value(Json& json, const prometheus::ClientMetric& metric, prometheus::MetricType type) {
  switch (type) {
    case prometheus::MetricType::Counter:
      json["value"] = metric.counter.value;
      return;
    case prometheus::MetricType::Gauge:
      json["value"] = metric.gauge.value;
      return;
    case prometheus::MetricType::Histogram:
      json["count"] = metric.histogram.sample_count;
      json["sum"] = metric.histogram.sample_sum;
      return;
    default:
      return;
  }
}

Json series_of(const prometheus::ClientMetric& metric, prometheus::MetricType type) {
  Json series = Json::object();
  for (const prometheus::ClientMetric::Label& label : metric.label) {
    if (label.name != "model_name") {
      series[label.name] = label.value;
    }
  }
  const bool labelled = !series.empty();
  put_value(series, metric, type);
  return labelled || !series.contains("value") ? series : series["value"];
}

bool is_labelled(const prometheus::ClientMetric& metric) {
  return metric.label.size() > 1 || (!metric.label.empty() && metric.label[0].name != "model_name");
}

}  // namespace

std::string metrics_json(const std::vector<prometheus::MetricFamily>& families) {
  Json json = Json::object();
  for (const prometheus::MetricFamily& family : families) {
    if (!family.name.starts_with(kPrefix) || family.metric.empty()) {
      continue;
    }
    Json& member = json[family.name.substr(kPrefix.size())];
    if (!is_labelled(family.metric.front())) {
      member = series_of(family.metric.front(), family.type);
      continue;
    }
    member = Json::array();
    for (const prometheus::ClientMetric& metric : family.metric) {
      member.push_back(series_of(metric, family.type));
    }
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tandem::observe
