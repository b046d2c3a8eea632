#include "loadgen/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tandem::loadgen {

namespace {

constexpr int kLeft = 46;
constexpr int kRight = 10;
constexpr int kTop = 22;
constexpr int kBottom = 22;

// 1, 2 or 5 times a power of ten, at least `value`.
double round_up(double value) {
  const double power = std::pow(10, std::floor(std::log10(std::max(value, 1e-9))));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (value <= step * power * (1 + 1e-9)) {
      return step * power;
    }
  }
  return 10 * power;
}

std::vector<double> linear_ticks(double low, double high, int wanted) {
  std::vector<double> ticks;
  const double step = round_up((high - low) / wanted);
  for (double tick = std::ceil(low / step) * step; tick <= high + step * 1e-6; tick += step) {
    ticks.push_back(tick);
  }
  return ticks;
}

// Decades, and 2 and 5 between them where there are few.
std::vector<double> log_ticks(double low, double high) {
  std::vector<double> ticks;
  const bool few = std::log10(high / low) < 2.6;
  for (double power = std::pow(10, std::floor(std::log10(low))); power <= high; power *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) {
      const double tick = step * power;
      if ((step == 1.0 || few) && tick >= low * 0.999 && tick <= high * 1.001) {
        ticks.push_back(tick);
      }
    }
  }
  return ticks;
}

std::string tick_label(double value, Unit unit) {
  switch (unit) {
    case Unit::kMillis:
      return short_millis(value);
    case Unit::kSeconds:
      return fmt::format("{:g} s", std::round(value * 1000) / 1000);
    case Unit::kPercent:
      return fmt::format("{:g} %", std::round(value * 1000) / 1000);
    case Unit::kCount:
      return short_count(value);
  }
  return {};
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string short_millis(double millis) {
  if (millis == 0) {
    return "0";
  }
  if (millis < 0.9995) {
    return fmt::format("{:.3g} us", millis * 1e3);
  }
  return millis < 999.5 ? fmt::format("{:.3g} ms", millis) : fmt::format("{:.3g} s", millis / 1e3);
}

std::string short_count(double count) {
  if (count >= 999'950) {
    return fmt::format("{:.3g}M", count / 1e6);
  }
  if (count >= 9'999.5) {
    return fmt::format("{:.3g}k", count / 1e3);
  }
  return count == std::round(count) || count >= 1000 ? fmt::format("{:.0f}", count)
                                                     : fmt::format("{:.3g}", count);
}

std::string grouped(int64_t count) {
  std::string digits = std::to_string(count);
  for (auto at = static_cast<ptrdiff_t>(digits.size()) - 3; at > (count < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ',');
  }
  return digits;
}

Axis axis_from_zero(double most, Unit unit) {
  const double step = round_up(std::max(most, 1e-6) / 4);
  return {Scale::kLinear, unit, 0, step * std::ceil(std::max(most, 1e-6) / step)};
}

Axis log_axis(double least, double most, Unit unit) {
  const double low = std::max(least, 0.01);
  const double high = std::max(most, low);
  const double centre = std::sqrt(low * high);
  const double half = std::max(std::sqrt(high / low) * 1.06, std::pow(10, 0.3));
  return {Scale::kLog, unit, centre / half, centre * half};
}

Plot::Plot(PlotSize size, Axis x, Axis y, std::string_view label)
    : size_(size), x_(std::move(x)), y_(std::move(y)), label_(label) {
  draw_axes();
}

double Plot::px(double x) const {
  const double share = x_.scale == Scale::kLog
                           ? std::log(std::max(x, x_.low) / x_.low) / std::log(x_.high / x_.low)
                           : (x - x_.low) / std::max(x_.high - x_.low, 1e-12);
  return kLeft + std::clamp(share, 0.0, 1.0) * (size_.width - kLeft - kRight);
}

double Plot::py(double y) const {
  const double share = y_.scale == Scale::kLog
                           ? std::log(std::max(y, y_.low) / y_.low) / std::log(y_.high / y_.low)
                           : (y - y_.low) / std::max(y_.high - y_.low, 1e-12);
  return size_.height - kBottom - std::clamp(share, 0.0, 1.0) * (size_.height - kTop - kBottom);
}

void Plot::draw_axes() {
  const std::vector<double> rows =
      y_.scale == Scale::kLog ? log_ticks(y_.low, y_.high) : linear_ticks(y_.low, y_.high, 4);
  for (const double tick : rows) {
    body_ += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text class=\"tick\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
        kLeft, size_.width - kRight, py(tick), py(tick), kLeft - 6, py(tick) + 3.5,
        escaped(tick_label(tick, y_.unit)));
  }
  draw_columns();
  body_ += fmt::format("<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>", kLeft,
                       size_.width - kRight, size_.height - kBottom, size_.height - kBottom);
}

void Plot::draw_columns() {
  std::vector<AxisLabel> columns = x_.labels;
  if (columns.empty()) {
    for (const double tick : x_.scale == Scale::kLog
                                 ? log_ticks(x_.low, x_.high)
                                 : linear_ticks(x_.low, x_.high, size_.width / 90)) {
      columns.push_back({.at = tick, .text = tick_label(tick, x_.unit)});
    }
  }
  const double min_width = x_.labels.empty() ? 42 : 0;
  constexpr double kTickLetterWidth = 6.5;
  double free_from = 0;  // labels must not touch
  for (const AxisLabel& column : columns) {
    const double at = px(column.at);
    const double width =
        std::max(min_width, kTickLetterWidth * static_cast<double>(column.text.size() + 1));
    const bool has_room = at >= free_from;
    body_ += fmt::format("<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\"/>",
                         at, at, kTop, size_.height - kBottom);
    if (has_room) {
      body_ +=
          fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                      at, size_.height - 6, escaped(column.text));
      free_from = at + width;
    }
  }
}

std::string Plot::step_path(const std::vector<Point>& points, double end_x) const {
  std::string path;
  for (size_t i = 0; i < points.size(); ++i) {
    path += fmt::format("{}{:.1f} {:.1f}H{:.1f}", i == 0 ? "M" : "L", px(points[i].x),
                        py(points[i].y), px(i + 1 < points.size() ? points[i + 1].x : end_x));
  }
  return path;
}

void Plot::area(const std::vector<Point>& points, double end_x, int series) {
  if (points.empty()) {
    return;
  }
  body_ += fmt::format("<path class=\"area c{}\" d=\"{}V{:.1f}H{:.1f}Z\"/>", series,
                       step_path(points, end_x), py(y_.low), px(points.front().x));
  steps(points, end_x, series);
}

void Plot::steps(const std::vector<Point>& points, double end_x, int series) {
  if (!points.empty()) {
    body_ += fmt::format("<path class=\"line c{}\" d=\"{}\"/>", series, step_path(points, end_x));
  }
}

void Plot::line(const std::vector<Point>& points, int series) {
  std::string path;
  for (const Point& point : points) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", px(point.x), py(point.y));
  }
  if (!path.empty()) {
    body_ += fmt::format("<path class=\"line c{}\" d=\"{}\"/>", series, path);
  }
}

void Plot::bar(double x, double end_x, double y, int series) {
  body_ += fmt::format(
      "<rect class=\"bar c{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>",
      series, px(x), py(y), px(end_x) - px(x), py(y_.low) - py(y));
}

void Plot::band(const std::vector<Point>& low, const std::vector<Point>& high, int series) {
  std::string path;
  for (const Point& point : high) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", px(point.x), py(point.y));
  }
  for (auto point = low.rbegin(); point != low.rend(); ++point) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", px(point->x), py(point->y));
  }
  if (!path.empty()) {
    body_ += fmt::format("<path class=\"band c{}\" d=\"{}Z\"/>", series, path);
  }
}

void Plot::whisker(double x, double low, double high) {
  constexpr double kHalfEnd = 4;  // of the ends' width
  const double at = px(x);
  body_ += fmt::format(
      "<path class=\"whisker\" d=\"M{0:.1f} {2:.1f}H{1:.1f}M{0:.1f} {3:.1f}"
      "H{1:.1f}M{4:.1f} {2:.1f}V{3:.1f}\"/>",
      at - kHalfEnd, at + kHalfEnd, py(high), py(low), at);
}

void Plot::diagonal() {
  const double low = std::max(x_.low, y_.low);
  const double high = std::min(x_.high, y_.high);
  body_ += fmt::format("<path class=\"diagonal\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>", px(low),
                       py(low), px(high), py(high));
}

void Plot::dots(const std::vector<Point>& points, int series) {
  constexpr size_t kFew = 200;  // these do not cover each other, so they may be seen from afar
  const double radius = points.size() <= kFew ? 3.5 : 2;
  body_ += fmt::format("<g class=\"dots c{}\">", series);
  for (const Point& point : points) {
    body_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"/>", px(point.x), py(point.y),
                         radius);
  }
  body_ += "</g>";
}

void Plot::marker(double x, std::string_view word, int row, std::string_view css_class) {
  if (x < x_.low || x > x_.high) {
    return;
  }
  const double at = px(x);
  const bool left = at > size_.width - 60;
  body_ += fmt::format(
      "<line class=\"{}\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\"/>"
      "<text class=\"mark\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"{}\">{}</text>",
      css_class, at, at, kTop - 8 + 10 * row, size_.height - kBottom, left ? at - 3 : at + 3,
      kTop - 1 + 10 * row, left ? "end" : "start", escaped(word));
}

void Plot::horizontal(double y, std::string_view word) {
  if (y < y_.low || y > y_.high) {
    return;
  }
  body_ += fmt::format(
      "<line class=\"target\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
      "<text class=\"mark\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
      kLeft, size_.width - kRight, py(y), py(y), size_.width - kRight, py(y) - 3, escaped(word));
}

void Plot::hint(double x, double end_x, std::string_view text) {
  hints_ += fmt::format(
      "<rect class=\"hint\" x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\"><title>{}</title>"
      "</rect>",
      px(x), kTop, std::max(px(end_x) - px(x), 0.5), size_.height - kTop - kBottom, escaped(text));
}

std::string Plot::svg() const {
  return fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}{}</svg>",
                     size_.width, size_.height, escaped(label_), body_, hints_);
}

}  // namespace tandem::loadgen
