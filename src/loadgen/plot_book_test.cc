#include "loadgen/plot_book.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "loadgen/result_json.h"

namespace tandem::loadgen {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Plot some_plot() {
  Plot plot({.width = 200, .height = 100}, {.high = 10}, {.high = 10}, "label");
  plot.line({{1, 1}, {9, 9}}, 0);
  plot.band({{1, 0}, {9, 7}}, {{1, 2}, {9, 10}}, 1);
  plot.whisker(5, 2, 8);
  plot.diagonal();
  plot.hint(0, 1, "hint");
  return plot;
}

TEST(WriteText, APipeIsWrittenToAndNotReplaced) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "write_text_pipe";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string name = folder / "pipe";
  ASSERT_EQ(mkfifo(name.c_str(), 0600), 0);
  const int reader = open(name.c_str(), O_RDWR);  // so that neither side waits for the other
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(write_text(name, "result").ok());
  char text[16] = {};
  EXPECT_EQ(read(reader, text, sizeof(text)), 6);
  EXPECT_STREQ(text, "result");
  EXPECT_TRUE(std::filesystem::is_fifo(name));
  close(reader);
}

TEST(PlotBook, AFileStandsAloneAndThePageGetsThePlot) {
  PlotBook book;
  const std::string inline_svg = book.place(
      some_plot(),
      {.name = "a b/c", .title = "T <1>", .x = "x & y", .legend = {{0, "one"}, {1, "two"}}});
  EXPECT_THAT(inline_svg, HasSubstr("aria-label=\"label\""));
  ASSERT_EQ(book.files().size(), 1U);
  EXPECT_EQ(book.files()[0].name, "a_b_c.svg");
  const std::string& svg = book.files()[0].svg;
  EXPECT_THAT(svg, HasSubstr("xmlns=\"http://www.w3.org/2000/svg\" width=\"200\" height=\"160\""));
  EXPECT_THAT(svg, HasSubstr("T &lt;1&gt;"));
  EXPECT_THAT(svg, HasSubstr("x &amp; y"));
  EXPECT_THAT(svg, HasSubstr(">two</text>"));
  EXPECT_THAT(svg, HasSubstr("class=\"band c1\""));
  EXPECT_THAT(svg, HasSubstr("class=\"whisker\""));
  EXPECT_THAT(svg, HasSubstr("class=\"diagonal\""));
  EXPECT_THAT(svg, Not(HasSubstr("var(")));
  EXPECT_FALSE(std::regex_search(svg, std::regex("nan|inf[^i]")));
}

TEST(PlotBook, NamesDiffer) {
  PlotBook book;
  for (int i = 0; i < 3; ++i) {
    book.place(some_plot(), {.name = "p", .title = "", .x = ""});
  }
  EXPECT_EQ(book.files()[1].name, "p-2.svg");
  EXPECT_EQ(book.files()[2].name, "p-3.svg");
}

TEST(PlotBook, FilesAreWrittenOrTheErrorNamesTheFolder) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "plot_book_test";
  ASSERT_TRUE(write_plots((folder / "plots").string(), {{.name = "a.svg", .svg = "<svg/>"}}).ok());
  std::string text;
  std::getline(std::ifstream(folder / "plots" / "a.svg"), text);
  EXPECT_EQ(text, "<svg/>");
  const Status refused = write_plots((folder / "plots" / "a.svg" / "b").string(), {});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("a.svg"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tandem::loadgen
