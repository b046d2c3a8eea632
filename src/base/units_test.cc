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
  EXPECT_EQ(*parse_duration("0"), 0ns);
  EXPECT_FALSE(parse_duration("5").ok());
}

TEST(Units, FormattingPicksTheUnit) {
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(int64_t{3} << 30), "3.00 GiB");
  EXPECT_EQ(format_duration(1500us), "1.50 ms");
}

}  // namespace
}  // namespace tandem
