#include "api/http_parser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::api {
namespace {

using State = HttpParser::State;

TEST(HttpParser, ARequestMayComeByteByByte) {
  HttpParser parser({});
  const std::string text =
      "POST /v1/x?key=1 HTTP/1.1\r\nHost: h\r\nX-Two: a b\r\nContent-Length: 3\r\n\r\nabc";
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    ASSERT_EQ(parser.feed(text.substr(i, 1)), State::kNeedMore) << i;
    ASSERT_TRUE(parser.has_begun());
  }
  ASSERT_EQ(parser.feed(text.substr(text.size() - 1)), State::kComplete);
  const HttpRequest request = parser.take();
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/v1/x");
  EXPECT_EQ(request.header("x-two"), "a b");
  EXPECT_EQ(request.header("absent"), "");
  EXPECT_EQ(request.body, "abc");
  EXPECT_TRUE(request.keep_alive);
  EXPECT_FALSE(parser.has_begun());
}

TEST(HttpParser, ChunkedBodiesAreJoined) {
  const std::string text =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;ext=1\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
  for (const size_t step : {size_t{1}, size_t{7}, text.size()}) {
    HttpParser parser({});
    State state = State::kNeedMore;
    for (size_t i = 0; i < text.size(); i += step) {
      ASSERT_EQ(state, State::kNeedMore);
      state = parser.feed(text.substr(i, step));
    }
    ASSERT_EQ(state, State::kComplete) << parser.error_reason();
    EXPECT_EQ(parser.take().body, "abc0123456789");
  }
}

TEST(HttpParser, AnEmptyChunkedBodyMayComeByteByByte) {
  HttpParser parser({});
  const std::string text =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    ASSERT_EQ(parser.feed(text.substr(i, 1)), State::kNeedMore) << i;
  }
  ASSERT_EQ(parser.feed("\n"), State::kComplete);
  EXPECT_EQ(parser.take().body, "");
}

TEST(HttpParser, RequestsSentAheadAreKept) {
  HttpParser parser({});
  ASSERT_EQ(parser.feed("GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.0\r\n\r\nGET /c"),
            State::kComplete);
  EXPECT_EQ(parser.take().path, "/a");
  parser.hold(" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  ASSERT_EQ(parser.feed({}), State::kComplete);
  const HttpRequest second = parser.take();
  EXPECT_EQ(second.path, "/b");
  EXPECT_EQ(second.version, 10);
  EXPECT_FALSE(second.keep_alive);
  ASSERT_EQ(parser.feed({}), State::kComplete);
  EXPECT_FALSE(parser.take().keep_alive);
  EXPECT_EQ(parser.feed({}), State::kNeedMore);
}

TEST(HttpParser, ExpectContinueIsReportedOnce) {
  HttpParser parser({});
  ASSERT_EQ(parser.feed("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n"
                        "Expect: 100-Continue\r\n\r\n"),
            State::kExpectsContinue);
  EXPECT_EQ(parser.feed({}), State::kNeedMore);
  EXPECT_EQ(parser.feed("ab"), State::kComplete);
  EXPECT_EQ(parser.take().body, "ab");
}

TEST(HttpParser, MalformedRequestsAreOneStatus) {
  struct Case {
    std::string text;
    int status;
  };
  const std::string headers_end = "\r\n\r\n";
  const std::vector<Case> table = {
      {"\r\n\r\nhello", 400},
      {"GET\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\n\r\n", 505},
      {"GET / HTTX/1.1\r\n\r\n", 505},
      {"G\x01T / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},  // no Host
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
       400},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n200\r\n" +
           std::string(600, 'a'),
       413},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: magic\r\n\r\n", 417},
      {"GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(3000, 'a') + headers_end, 431},
      {"GET /" + std::string(3000, 'a') + " HTTP/1.1\r\nHost: a" + headers_end, 431},
  };
  for (const Case& bad : table) {
    HttpParser parser({.max_header_bytes = 1024, .max_body_bytes = 500});
    ASSERT_EQ(parser.feed(bad.text), State::kFailed) << bad.text;
    EXPECT_EQ(parser.error_status(), bad.status) << bad.text << ": " << parser.error_reason();
    EXPECT_FALSE(parser.error_reason().empty());
    EXPECT_EQ(parser.feed("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), State::kFailed);
  }
}

TEST(HttpMessage, HeadsAreWrittenWhole) {
  const HttpResponse response{.status = 404, .headers = {{"A", "b"}}, .body = "xyz"};
  EXPECT_EQ(response_head(response, BodyFraming::kLength, true),
            "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 3\r\n"
            "Connection: keep-alive\r\nA: b\r\n\r\n");
  EXPECT_EQ(response_head({.content_type = ""}, BodyFraming::kChunked, false),
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
}

}  // namespace
}  // namespace tandem::api
