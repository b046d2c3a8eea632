#include "node/step_budget_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kGood =
    R"({"tandem_step_budget": 1, "step_budget_us": 18500, "model": "8B", "model_digest": "12ab",
        "hold_us": {"p99_tbt": 21000, "mean_ttft": 80000}, "tried": []})";

std::string with(std::string_view from, std::string_view to) {
  std::string text(kGood);
  return text.replace(text.find(from), from.size(), to);
}

std::string error_of(std::string_view text) {
  const Result<StepBudgetFile> file = parse_step_budget(text);
  return file.ok() ? "" : file.error().message;
}

TEST(StepBudgetFile, IsRead) {
  const Result<StepBudgetFile> file = parse_step_budget(kGood);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->budget_us, 18500);
  EXPECT_EQ(file->model, "8B");
  EXPECT_EQ(file->model_digest, "12ab");
  EXPECT_THAT(file->held_us, ElementsAre(0, 21000, 80000, 0));
}

TEST(StepBudgetFile, MayHoldNothing) {
  const Result<StepBudgetFile> file =
      parse_step_budget(with(R"("hold_us": {"p99_tbt": 21000, "mean_ttft": 80000}, )", ""));
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_THAT(file->held_us, ElementsAre(0, 0, 0, 0));
}

TEST(StepBudgetFile, SaysWhatIsWrong) {
  EXPECT_THAT(error_of(""), HasSubstr("not what `tandem tune"));
  EXPECT_THAT(error_of("[]"), HasSubstr("not what `tandem tune"));
  EXPECT_THAT(error_of(std::string(100, '[')), HasSubstr("nests too deeply"));
  EXPECT_THAT(error_of(with(": 1,", ": 2,")), HasSubstr("its version is 2"));
  EXPECT_THAT(error_of(with("18500", "0")), HasSubstr("'step_budget_us' must be"));
  EXPECT_THAT(error_of(with("18500", "1e4")), HasSubstr("'step_budget_us' must be"));
  EXPECT_THAT(error_of(with("18500", "4294967296")), HasSubstr("'step_budget_us' must be"));
  EXPECT_THAT(error_of(with(R"("12ab")", "12")), HasSubstr("'model_digest' is missing"));
  EXPECT_THAT(error_of(with("21000", "-1")), HasSubstr("'p99_tbt' must be"));
  EXPECT_THAT(error_of(with("p99_tbt", "p50_tbt")), HasSubstr("unknown metric 'p50_tbt'"));
  EXPECT_THAT(error_of(with(R"({"p99_tbt": 21000, "mean_ttft": 80000})", "[1]")),
              HasSubstr("'hold_us' must be an object"));
}

TEST(StepBudgetFile, AFileIsNamed) {
  const Result<StepBudgetFile> none = read_step_budget("/nowhere/budget.json");
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("/nowhere/budget.json"));
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) / "step_budget_file_test.json";
  std::ofstream(path) << "{}";
  const Result<StepBudgetFile> empty = read_step_budget(path);
  ASSERT_FALSE(empty.ok());
  EXPECT_THAT(empty.error().message, HasSubstr(path.string()));
  std::ofstream(path) << kGood;
  EXPECT_TRUE(read_step_budget(path).ok());
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tandem
