#include "loadgen/plot_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "loadgen/result_json.h"

namespace tandem::loadgen {
namespace {

// Plain colours and names of fonts: small renderers know neither variables nor media queries.
constexpr std::string_view kFileStyle =
    ".grid{stroke:#eceef2}.axis{stroke:#5b6472}.tick,.note{fill:#5b6472;font-size:10.5px}"
    ".mark{fill:#14171f;font-size:10.5px;font-weight:600}.title{fill:#14171f;font-size:13px;"
    "font-weight:600}.pct{stroke:#14171f;stroke-opacity:.55;stroke-dasharray:2 3}"
    ".target{stroke:#c4342b;stroke-width:1.5;stroke-dasharray:5 3}"
    ".diagonal{fill:none;stroke:#5b6472;stroke-dasharray:4 3}"
    ".c-1{color:#14171f}.c0{color:#2f6fed}.c1{color:#e8692c}.c2{color:#12948a}.c3{color:#9a4fd0}"
    ".c4{color:#c9398a}.c5{color:#7c8a1f}.area,.band{fill:currentColor;fill-opacity:.16}"
    ".line{fill:none;stroke:currentColor;stroke-width:1.6;stroke-linejoin:round}"
    ".dots{fill:currentColor;fill-opacity:.7}.bar{fill:currentColor;fill-opacity:.75}"
    ".swatch{fill:currentColor}.whisker{stroke:#14171f;stroke-width:1.2}";

constexpr int kHead = 26;
constexpr int kLegendRow = 16;
constexpr int kFoot = 18;
constexpr double kLetterWidth = 6.2;

struct DrawnLegend {
  std::string svg;
  int height = 0;
};

DrawnLegend draw_legend(const std::vector<LegendEntry>& legend, int width) {
  DrawnLegend drawn;
  if (legend.size() < 2) {
    return drawn;
  }
  double x = 10;
  int row = 0;
  for (const LegendEntry& entry : legend) {
    const double entry_width = 26 + kLetterWidth * static_cast<double>(entry.text.size());
    if (x > 10 && x + entry_width > width) {
      x = 10;
      ++row;
    }
    const int y = kHead + row * kLegendRow;
    drawn.svg += fmt::format(
        "<rect class=\"swatch c{}\" x=\"{:.1f}\" y=\"{}\" width=\"10\" height=\"10\" rx=\"2\"/>"
        "<text class=\"note\" x=\"{:.1f}\" y=\"{}\">{}</text>",
        entry.series, x, y, x + 15, y + 9, escaped(entry.text));
    x += entry_width;
  }
  drawn.height = (row + 1) * kLegendRow;
  return drawn;
}

std::string file_svg(const Plot& plot, const PlotText& text) {
  const PlotSize size = plot.size();
  const DrawnLegend legend = draw_legend(text.legend, size.width);
  const int above = kHead + legend.height;
  const int height = above + size.height + (text.x.empty() ? 0 : kFoot);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" font-family=\"DejaVu Sans,Arial,sans-serif\"><title>{2}</title><style>{3}</style>"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/><text class=\"title\" x=\"10\" "
      "y=\"18\">{2}</text>{4}<g transform=\"translate(0,{5})\">{6}</g>",
      size.width, height, escaped(text.title), kFileStyle, legend.svg, above, plot.body());
  if (!text.x.empty()) {
    svg += fmt::format("<text class=\"note\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                       size.width / 2, height - 6, escaped(text.x));
  }
  return svg + "</svg>\n";
}

std::string file_name(const std::string& name) {
  std::string out = name;
  std::ranges::replace_if(
      out,
      [](char c) {
        return !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 c == '.' || c == '-' || c == '_');
      },
      '_');
  return out;
}

}  // namespace

// Two plots of one name differ by a number.
std::string PlotBook::place(const Plot& plot, const PlotText& text) {
  const std::string base = file_name(text.name);
  std::string name = base + ".svg";
  for (int number = 2; std::ranges::count(files_, name, &PlotFile::name) > 0; ++number) {
    name = fmt::format("{}-{}.svg", base, number);
  }
  files_.push_back({.name = std::move(name), .svg = file_svg(plot, text)});
  return plot.svg();
}

std::string legend_html(const std::vector<LegendEntry>& legend) {
  if (legend.size() < 2) {
    return {};
  }
  std::string html = "<div class=\"legend\">";
  for (const LegendEntry& entry : legend) {
    html += fmt::format("<span><i class=\"c{}\"></i>{}</span>", entry.series, escaped(entry.text));
  }
  return html + "</div>";
}

Status write_plots(const std::string& folder, const std::vector<PlotFile>& plots) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) {
    return Error{ErrorCode::kInternal,
                 fmt::format("the folder '{}' cannot be made: {}", folder, failure.message()), ""};
  }
  for (const PlotFile& plot : plots) {
    RETURN_IF_ERROR(write_text(fmt::format("{}/{}", folder, plot.name), plot.svg));
  }
  return {};
}

}  // namespace tandem::loadgen
