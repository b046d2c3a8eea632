// One plot as inline SVG: axes with round ticks, and marks in data coordinates. Colours and type
// are classes of the page's style sheet (c0, c1, ... for series), so that a page decides on light
// and dark. Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::loadgen {

// Text that may stand in an element or a quoted attribute.
std::string escaped(std::string_view text);

// "850 us", "12.3 ms", "4.5 s" of milliseconds.
std::string short_millis(double millis);
// "980", "12.3k", "4.5M".
std::string short_count(double count);
// "1,234,567".
std::string grouped(int64_t count);

enum class Scale : uint8_t { kLinear, kLog };
enum class Unit : uint8_t { kCount, kMillis, kSeconds, kPercent };

struct AxisLabel {
  double at = 0;
  std::string text;
};

struct Axis {
  Scale scale = Scale::kLinear;
  Unit unit = Unit::kCount;
  double low = 0;
  double high = 1;
  std::vector<AxisLabel> labels = {};  // of an x axis, in place of round ticks; ascending
};

struct Point {
  double x = 0;
  double y = 0;
};

struct PlotSize {
  int width = 350;
  int height = 210;
};

class Plot {
 public:
  // `label` is read aloud in place of the picture.
  Plot(PlotSize size, Axis x, Axis y, std::string_view label);

  // Steps: `points` are the left edges and heights of slices; the last one ends at `end_x`.
  void area(const std::vector<Point>& points, double end_x, int series);
  void steps(const std::vector<Point>& points, double end_x, int series);
  void line(const std::vector<Point>& points, int series);
  void bar(double x, double end_x, double y, int series);
  // What lies between two lines over the same places.
  void band(const std::vector<Point>& low, const std::vector<Point>& high, int series);
  // A vertical line with ends: what a bar's height may also be.
  void whisker(double x, double low, double high);
  // From corner to corner of axes that are the same: where both values are equal.
  void diagonal();
  void dots(const std::vector<Point>& points, int series);
  // A vertical line with a word at its top; `row` keeps neighbours' words apart.
  void marker(double x, std::string_view word, int row, std::string_view css_class);
  void horizontal(double y, std::string_view word);
  // An invisible column that shows `text` when pointed at.
  void hint(double x, double end_x, std::string_view text);

  [[nodiscard]] std::string svg() const;
  // What stands inside of svg(), without hints.
  [[nodiscard]] const std::string& body() const { return body_; }
  [[nodiscard]] PlotSize size() const { return size_; }

 private:
  [[nodiscard]] double px(double x) const;
  [[nodiscard]] double py(double y) const;
  [[nodiscard]] std::string step_path(const std::vector<Point>& points, double end_x) const;
  void draw_axes();
  void draw_columns();

  PlotSize size_;
  Axis x_;
  Axis y_;
  std::string label_;
  std::string body_;
  std::string hints_;
};

// An axis from 0 to a round number over `most`.
Axis axis_from_zero(double most, Unit unit);
// A logarithmic axis around [least, most], at least half a decade wide.
Axis log_axis(double least, double most, Unit unit);

}  // namespace tandem::loadgen
