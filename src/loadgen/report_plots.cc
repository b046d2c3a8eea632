#include "loadgen/report_plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "loadgen/svg_plot.h"

namespace tandem::loadgen {

namespace {

constexpr int kSeries = 6;
constexpr PlotSize kWide{1080, 150};
constexpr PlotSize kThird{350, 220};
constexpr PlotSize kHalf{520, 250};

int colour(size_t group) { return static_cast<int>(group % kSeries); }

std::vector<LegendEntry> legend_of(const std::vector<GroupSummary>& groups) {
  std::vector<LegendEntry> legend;
  for (const GroupSummary& group : groups) {
    legend.push_back({colour(legend.size()), group.name});
  }
  return legend;
}

std::vector<Point> series(const Summary& summary,
                          const std::function<double(const TimelineSlice&)>& value) {
  std::vector<Point> points;
  for (const TimelineSlice& slice : summary.timeline) {
    points.push_back({slice.begin_s, value(slice)});
  }
  return points;
}

double most(const std::vector<Point>& points) {
  double value = 0;
  for (const Point& point : points) {
    value = std::max(value, point.y);
  }
  return value;
}

void add_hints(const Summary& summary, Plot& plot,
               const std::function<std::string(const TimelineSlice&)>& text) {
  for (const TimelineSlice& slice : summary.timeline) {
    plot.hint(slice.begin_s, slice.begin_s + summary.slice_s,
              fmt::format("{:g} s: {}", slice.begin_s, text(slice)));
  }
}

// The share of samples in each of `bins` equal steps of a logarithmic axis.
std::vector<Point> histogram(const Distribution& values, const Axis& axis, int bins) {
  std::vector<Point> points;
  const double ratio = std::pow(axis.high / axis.low, 1.0 / bins);
  auto from = values.sorted.begin();
  double edge = axis.low;
  for (int i = 0; i < bins; ++i, edge *= ratio) {
    const auto to = i + 1 == bins ? values.sorted.end()
                                  : std::upper_bound(from, values.sorted.end(), edge * ratio);
    points.push_back(
        {edge, 100.0 * static_cast<double>(to - from) / static_cast<double>(values.count())});
    from = to;
  }
  return points;
}

struct Metric {
  std::string_view name;
  std::string_view title;
  std::string_view meaning;
  Distribution GroupSummary::*values;
  std::function<double(const Goodput&)> target;  // in ms; 0: none
};

std::string distribution_card(const Summary& summary, const Metric& metric, PlotBook& book) {
  const Distribution& all = summary.all.*metric.values;
  std::string html = fmt::format(
      "<section class=\"card\"><div class=\"head\"><h2>{}</h2>{}</div><p class=\"note\">{}</p>",
      metric.title, legend_html(legend_of(summary.groups)), metric.meaning);
  if (all.count() == 0) {
    return html + "<p class=\"note\">No samples.</p></section>";
  }
  const double target = metric.target(summary.all.goodput);
  // The outermost samples would squeeze the rest: bins at both ends take them.
  constexpr double kFinest_ms = 0.1;  // gaps below are chunks that came in one piece
  const Axis x = log_axis(std::max(all.at(0.1), kFinest_ms),
                          std::max(all.at(99.9), target > 0 ? std::min(target, all.most() * 3) : 0),
                          Unit::kMillis);
  const int bins =
      std::clamp(static_cast<int>(1.6 * std::sqrt(static_cast<double>(all.count()))), 12, 48);
  std::vector<std::vector<Point>> shapes;
  double highest = 0;
  for (const GroupSummary& group : summary.groups) {
    const Distribution& values = group.*metric.values;
    shapes.push_back(values.count() == 0 ? std::vector<Point>{} : histogram(values, x, bins));
    highest = std::max(highest, most(shapes.back()));
  }
  Plot plot(kThird, x, axis_from_zero(highest * 1.15, Unit::kPercent),
            fmt::format("Distribution of {}: median {}, P99 {}", metric.title,
                        short_millis(all.at(50)), short_millis(all.at(99))));
  for (size_t i = 0; i < shapes.size(); ++i) {
    plot.area(shapes[i], x.high, colour(i));
  }
  plot.marker(all.at(50), "P50", 0, "pct");
  plot.marker(all.at(90), "P90", 1, "pct");
  plot.marker(all.at(99), "P99", 2, "pct");
  if (target > 0) {
    plot.marker(target, "target", 3, "target");
  }
  html += book.place(plot, {.name = std::string(metric.name),
                            .title = fmt::format("{}: share of samples", metric.title),
                            .x = "",
                            .legend = legend_of(summary.groups)});
  html +=
      "<div class=\"scroll\"><table "
      "class=\"dense\"><tr><th></th><th>P50</th><th>P90</th><th>P99</th><th>max"
      "</th></tr>";
  for (const GroupSummary& group : summary.groups) {
    const Distribution& values = group.*metric.values;
    html +=
        fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                    escaped(group.name), short_millis(values.at(50)), short_millis(values.at(90)),
                    short_millis(values.at(99)), short_millis(values.most()));
  }
  return html + "</table></div></section>";
}

std::string scatter_card(const PlotText& text, Plot plot,
                         const std::vector<std::vector<Point>>& dots, const Summary& summary,
                         PlotBook& book) {
  for (size_t i = 0; i < dots.size(); ++i) {
    plot.dots(dots[i], colour(i));
  }
  if (summary.all.goodput.ttft && summary.all.goodput.ttft->per_token == Nanos{0}) {
    plot.horizontal(to_millis(summary.all.goodput.ttft->base), "target");
  }
  return fmt::format("<section class=\"card\"><div class=\"head\"><h2>{}</h2>{}</div>{}</section>",
                     text.title, legend_html(text.legend), book.place(plot, text));
}

}  // namespace

int series_of(size_t group, size_t groups) { return groups < 2 ? -1 : colour(group); }

std::string timeline_card(const Summary& summary, PlotBook& book) {
  if (summary.timeline.empty()) {
    return {};
  }
  const double end = summary.timeline.back().begin_s + summary.slice_s;
  const Axis x{Scale::kLinear, Unit::kSeconds, 0, end};
  const double per_s = 1 / summary.slice_s;
  const auto offered = series(
      summary, [&](const TimelineSlice& s) { return static_cast<double>(s.planned) * per_s; });
  const auto answered =
      series(summary, [&](const TimelineSlice& s) { return static_cast<double>(s.done) * per_s; });
  const auto failed = series(
      summary, [&](const TimelineSlice& s) { return static_cast<double>(s.failed) * per_s; });
  const auto running = series(summary, [](const TimelineSlice& s) { return s.under_way; });
  const auto tokens = series(
      summary, [&](const TimelineSlice& s) { return static_cast<double>(s.chunks) * per_s; });

  Plot load(kWide, x,
            axis_from_zero(std::max({most(offered), most(answered), most(failed)}), Unit::kCount),
            "Requests offered and answered a second over time");
  load.area(offered, end, 0);
  load.steps(answered, end, 2);
  if (most(failed) > 0) {
    load.steps(failed, end, 4);
  }
  add_hints(summary, load, [&](const TimelineSlice& s) {
    return fmt::format("{:.3g} requests/s offered, {:.3g} answered, {:.3g} failed",
                       static_cast<double>(s.planned) * per_s, static_cast<double>(s.done) * per_s,
                       static_cast<double>(s.failed) * per_s);
  });
  Plot under_way(kWide, x, axis_from_zero(most(running), Unit::kCount),
                 "Requests under way over time");
  under_way.area(running, end, 3);
  add_hints(summary, under_way,
            [](const TimelineSlice& s) { return fmt::format("{:.3g} requests", s.under_way); });
  Plot output(kWide, x, axis_from_zero(most(tokens), Unit::kCount), "Output tokens a second");
  output.area(tokens, end, 1);
  add_hints(summary, output, [&](const TimelineSlice& s) {
    return fmt::format("{:.3g} tokens/s", static_cast<double>(s.chunks) * per_s);
  });
  return fmt::format(
      "<section class=\"card\"><div class=\"head\"><h2>Over time</h2><div class=\"legend\">"
      "<span><i class=\"c0\"></i>offered</span><span><i class=\"c2\"></i>answered</span>{}"
      "<span><i class=\"c3\"></i>running</span><span><i class=\"c1\"></i>output</span></div></div>"
      "<p class=\"plot-title\">requests a second</p>{}<p class=\"plot-title\">requests "
      "running</p>{}"
      "<p class=\"plot-title\">output tokens a second</p>{}</section>",
      most(failed) > 0 ? "<span><i class=\"c4\"></i>failed</span>" : "",
      book.place(load, {.name = "requests-over-time",
                        .title = "Requests a second",
                        .x = "",
                        .legend = {{0, "offered"}, {2, "answered"}, {4, "failed"}}}),
      book.place(under_way, {.name = "running-over-time", .title = "Requests running", .x = ""}),
      book.place(output, {.name = "output-over-time", .title = "Output tokens a second", .x = ""}));
}

std::string distribution_cards(const Summary& summary, PlotBook& book) {
  const Metric metrics[] = {
      {"ttft", "Time to first token", "TTFT: from sending a request to its first token",
       &GroupSummary::ttft,
       [](const Goodput& goodput) {
         return goodput.ttft && goodput.ttft->per_token == Nanos{0} ? to_millis(goodput.ttft->base)
                                                                    : 0.0;
       }},
      {"tpot", "Time per output token", "TPOT: mean of an answer after its first token",
       &GroupSummary::tpot,
       [](const Goodput& goodput) { return goodput.tpot ? to_millis(*goodput.tpot) : 0.0; }},
      {"tbt", "Time between tokens", "TBT: every single gap that a reader sees", &GroupSummary::itl,
       [](const Goodput&) { return 0.0; }}};
  std::string html = "<div class=\"three\">";
  for (const Metric& metric : metrics) {
    html += distribution_card(summary, metric, book);
  }
  return html + "</div>";
}

std::string scatter_cards(const Load& load, const RunResult& run, const Summary& summary,
                          PlotBook& book) {
  if (summary.all.ttft.count() == 0) {
    return {};
  }
  constexpr int64_t kMostDots = 3000;
  const int64_t stride = summary.all.done / kMostDots + 1;
  std::vector<std::vector<Point>> by_time(load.groups.size());
  std::vector<std::vector<Point>> by_length(load.groups.size());
  double longest = 0;
  int64_t seen = 0;
  for (const RequestRecord& record : run.records) {
    if (record.outcome == Outcome::kDone && seen++ % stride == 0) {
      const auto group = static_cast<size_t>(record.group);
      const double ttft = to_millis(record.ttft());
      const auto tokens = static_cast<double>(record.input_tokens());
      by_time[group].push_back({to_seconds(record.sent_at), ttft});
      by_length[group].push_back({tokens, ttft});
      longest = std::max(longest, tokens);
    }
  }
  const Axis y = log_axis(summary.all.ttft.least(), summary.all.ttft.most(), Unit::kMillis);
  Plot time(kHalf, {Scale::kLinear, Unit::kSeconds, 0, std::max(summary.duration_s, 0.001)}, y,
            "Time to first token of each request over time");
  Plot length(kHalf, axis_from_zero(longest, Unit::kCount), y,
              "Time to first token of each request by prompt length");
  return fmt::format("<div class=\"two\">{}{}</div>",
                     scatter_card({.name = "ttft-over-time",
                                   .title = "First token over time",
                                   .x = "",
                                   .legend = legend_of(summary.groups)},
                                  std::move(time), by_time, summary, book),
                     scatter_card({.name = "ttft-by-prompt",
                                   .title = "First token by prompt tokens",
                                   .x = "prompt tokens",
                                   .legend = legend_of(summary.groups)},
                                  std::move(length), by_length, summary, book));
}

}  // namespace tandem::loadgen
