#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log_fields.h"

namespace tandem::log {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string logged(Format format, const std::function<void()>& write) {
  EXPECT_TRUE(start("info", format).ok());
  ::testing::internal::CaptureStderr();
  write();
  std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(start("info").ok());
  return text;
}

const Fields kFields = {{"path", "/v1/models"},
                        {"status", int64_t{200}},
                        {"duration_ms", 1.25},
                        {"plan", RawJson{R"({"KV":1})"}}};

TEST(Log, AJsonLineIsOneObjectWithTheFieldsBehindTheMessage) {
  const std::string line = logged(Format::kJson, [] { info_fields("access", kFields); });
  EXPECT_THAT(line,
              MatchesRegex("\\{\"time\":\"[0-9-]+T[0-9:]+\\.[0-9]+Z\",\"level\":\"info\",.*\n"));
  EXPECT_THAT(line, HasSubstr(R"("message":"access","path":"/v1/models","status":200,)"
                              R"("duration_ms":1.2,"plan":{"KV":1}})"));
}

TEST(Log, AJsonLineStaysOneValidLineWhateverIsLogged) {
  const std::string line =
      logged(Format::kJson, [] { warn("{}", "a\nb\"c\\d\x01 \xc3\xa9 \xff \xed\xa0\x80 end"); });
  EXPECT_EQ(std::ranges::count(line, '\n'), 1);
  EXPECT_THAT(line, HasSubstr("\"level\":\"warning\""));
  const std::string bad = "\xef\xbf\xbd";
  EXPECT_THAT(line,
              HasSubstr("a\\nb\\\"c\\\\d\\u0001 \xc3\xa9 " + bad + " " + bad + bad + bad + " end"));
}

TEST(Log, FieldsBelongToOneLineOnly) {
  const std::string lines = logged(Format::kJson, [] {
    info_fields("first", kFields);
    info("second");
  });
  EXPECT_THAT(lines, HasSubstr("\"message\":\"second\"}\n"));
}

TEST(Log, TextLinesHaveTimeLevelAndTheMessageAlone) {
  const std::string line = logged(Format::kText, [] { info_fields("plan: 1 GiB", kFields); });
  EXPECT_THAT(line, MatchesRegex("[0-9-]+ [0-9:.]+ info plan: 1 GiB\n"));
  EXPECT_EQ(text_of(kFields), " path=/v1/models status=200 duration_ms=1.2 plan={\"KV\":1}");
}

TEST(Log, UnknownFormatsAndLevelsAreNamed) {
  EXPECT_THAT(parse_format("xml").error().message, HasSubstr("known: text, json"));
  EXPECT_THAT(start("loud", Format::kJson).error().message, HasSubstr("'loud'"));
}

}  // namespace
}  // namespace tandem::log
