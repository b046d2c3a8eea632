#include "loadgen/sse_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::loadgen {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> events_of(const std::vector<std::string_view>& pieces) {
  SseParser parser;
  std::vector<std::string> events;
  for (const std::string_view piece : pieces) {
    EXPECT_TRUE(parser.feed(piece, [&](std::string_view data) { events.emplace_back(data); }).ok());
  }
  return events;
}

constexpr std::string_view kStream =
    ": keep-alive\n\n"
    "data: {\"a\": 1}\n\n"
    "event: x\r\ndata:two\r\ndata: lines\r\n\r\n"
    "id: 4\rdata: three\r\r"
    "data\n\n"
    "database: no\n\n"
    "data: [DONE]\n\n";

TEST(SseParser, LineEndsCommentsAndFieldsAreReadAsTheStandardSays) {
  EXPECT_THAT(events_of({kStream}), ElementsAre("{\"a\": 1}", "two\nlines", "three", "", "[DONE]"));
}

TEST(SseParser, EveryCutInTwoGivesTheSameEvents) {
  const std::vector<std::string> whole = events_of({kStream});
  for (size_t cut = 0; cut <= kStream.size(); ++cut) {
    EXPECT_EQ(events_of({kStream.substr(0, cut), kStream.substr(cut)}), whole) << cut;
  }
}

TEST(SseParser, EveryCutInThreeGivesTheSameEvents) {
  const std::vector<std::string> whole = events_of({kStream});
  for (size_t first = 0; first <= kStream.size(); ++first) {
    for (size_t second = first; second <= kStream.size(); ++second) {
      ASSERT_EQ(events_of({kStream.substr(0, first), kStream.substr(first, second - first),
                           kStream.substr(second)}),
                whole)
          << first << " " << second;
    }
  }
}

TEST(SseParser, BytesOneByOneGiveTheSameEvents) {
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < kStream.size(); ++i) {
    bytes.push_back(kStream.substr(i, 1));
  }
  EXPECT_EQ(events_of(bytes), events_of({kStream}));
}

TEST(SseParser, AnEndlessEventIsAnErrorNotMemory) {
  SseParser parser(1000);
  Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) {
    status = parser.feed("data: 0123456789012345678901234567890123456789\n",
                         [](std::string_view) { FAIL(); });
  }
  EXPECT_FALSE(status.ok());
  SseParser line(1000);
  EXPECT_FALSE(line.feed(std::string(2000, 'x'), [](std::string_view) { FAIL(); }).ok());
}

TEST(SseParser, AnEventWithoutItsEmptyLineIsNotDelivered) {
  EXPECT_THAT(events_of({"data: a"}), ElementsAre());
  EXPECT_THAT(events_of({"data: a", "\n"}), ElementsAre());
  EXPECT_THAT(events_of({"data: a", "\n", "\n"}), ElementsAre("a"));
}

}  // namespace
}  // namespace tandem::loadgen
