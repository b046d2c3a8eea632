#include "base/units.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

using namespace std::chrono_literals;

TEST(Units, BytesAreReadInBothSystems) {
  EXPECT_EQ(*parse_bytes("123"), 123);
  EXPECT_EQ(*parse_bytes("2GiB"), int64_t{2} << 30);
  EXPECT_EQ(*parse_bytes("1.5 KB"), 1500);
}

TEST(Units, WrongBytesNameTheCause) {
  EXPECT_FALSE(parse_bytes("").ok());
  EXPECT_FALSE(parse_bytes("-1GiB").ok());
  EXPECT_FALSE(parse_bytes("inf").ok());
  EXPECT_FALSE(parse_bytes("99999999999TiB").ok());
  EXPECT_NE(parse_bytes("2 GIB").error().message.find("unknown unit 'GIB'"), std::string::npos);
}

TEST(Units, DurationsNeedAUnit) {
  EXPECT_EQ(*parse_duration("200ms"), 200ms);
  EXPECT_EQ(*parse_duration("1.5s"), 1500ms);
  EXPECT_EQ(*parse_duration("2h"), 2h);
  EXPECT_EQ(*parse_duration("30d"), 30 * 24h);
  EXPECT_EQ(exact_duration(30 * 24h), "30d");
  EXPECT_EQ(exact_duration(25h), "90000s");
  EXPECT_EQ(*parse_duration("0"), 0ns);
  EXPECT_FALSE(parse_duration("5").ok());
}

TEST(Units, FormattingPicksTheUnit) {
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(int64_t{3} << 30), "3.00 GiB");
  EXPECT_EQ(format_duration(1500us), "1.50 ms");
}

TEST(Units, ExactTextsAreReadAsTheSame) {
  for (const auto& [bytes, text] :
       {std::pair(int64_t{0}, "0"), std::pair(int64_t{1000}, "1000"),
        std::pair(int64_t{1024}, "1KiB"), std::pair(int64_t{32} << 20, "32MiB"),
        std::pair(int64_t{3} << 29, "1536MiB"), std::pair(int64_t{1} << 40, "1TiB")}) {
    EXPECT_EQ(exact_bytes(bytes), text);
    EXPECT_EQ(*parse_bytes(text), bytes);
  }
  for (const auto& [time, text] :
       {std::pair(Nanos(0), "0"), std::pair(Nanos(75s), "75s"), std::pair(Nanos(1500ms), "1500ms"),
        std::pair(Nanos(3us), "3us"), std::pair(Nanos(7), "7ns")}) {
    EXPECT_EQ(exact_duration(time), text);
    EXPECT_EQ(*parse_duration(text), time);
  }
}

}  // namespace
}  // namespace tandem
