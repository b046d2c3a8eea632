#include "api/http_parser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::api {
namespace {

using State = HttpParser::State;

// Takes every request, as a server does that refuses none by its headers.
struct Reader {
  explicit Reader(const HttpLimits& limits = {}) : parser(limits) {}
  State feed(std::string_view input) {
    State state = parser.feed(input);
    if (state == State::kHeaders) {
      request = parser.head();
      expects_continue = parser.expects_continue();
      state = parser.feed({});
    }
    if (state == State::kComplete) {
      request.body = parser.take_body();
    }
    return state;
  }
  HttpParser parser;
  HttpRequest request;  // the last one
  bool expects_continue = false;
};

TEST(HttpParser, ARequestMayComeByteByByte) {
  Reader reader;
  const std::string text =
      "POST /v1/x?key=1 HTTP/1.1\r\nHost: h\r\nX-Two: a b\r\nContent-Length: 3\r\n\r\nabc";
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    ASSERT_EQ(reader.feed(text.substr(i, 1)), State::kNeedMore) << i;
    ASSERT_TRUE(reader.parser.has_begun());
  }
  ASSERT_EQ(reader.feed(text.substr(text.size() - 1)), State::kComplete);
  const HttpRequest& request = reader.request;
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/v1/x");
  EXPECT_EQ(request.header("x-two"), "a b");
  EXPECT_EQ(request.header("absent"), "");
  EXPECT_EQ(request.body, "abc");
  EXPECT_TRUE(request.keep_alive);
  EXPECT_FALSE(reader.parser.has_begun());
}

TEST(HttpParser, TheQueryStandsBesideThePath) {
  Reader reader;
  ASSERT_EQ(reader.feed("GET http://h/v1/files?limit=2&after=a?b HTTP/1.1\r\nHost: h\r\n\r\n"),
            State::kComplete);
  EXPECT_EQ(reader.request.path, "/v1/files");
  EXPECT_EQ(reader.request.query, "limit=2&after=a?b");
}

TEST(HttpParser, AStreamedBodyIsTakenInPiecesAndHasALimitOfItsOwn) {
  constexpr HttpLimits kLimits{
      .max_header_bytes = 1000, .max_body_bytes = 10, .max_streamed_bytes = 20};
  const auto head = [](int length) {
    return fmt::format("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", length);
  };
  HttpParser parser(kLimits);
  ASSERT_EQ(parser.feed(head(20) + "0123"), State::kHeaders);
  parser.stream_body();
  ASSERT_EQ(parser.feed({}), State::kNeedMore);
  EXPECT_EQ(parser.take_piece(), "0123");
  EXPECT_EQ(parser.body_bytes(), 0U);
  ASSERT_EQ(parser.feed("456789"), State::kNeedMore);
  ASSERT_EQ(parser.feed("abcdefghij"), State::kComplete);
  EXPECT_EQ(parser.take_piece(), "456789abcdefghij");
  EXPECT_EQ(parser.take_body(), "");
  // The next request is one like others again.
  EXPECT_EQ(parser.feed(head(11)), State::kHeaders);
  EXPECT_FALSE(parser.expects_continue());
  EXPECT_EQ(parser.feed({}), State::kFailed);
  EXPECT_EQ(parser.error_status(), 413);
  HttpParser large(kLimits);
  EXPECT_EQ(large.feed(head(21)), State::kHeaders) << "path and key are answered first";
  EXPECT_FALSE(large.expects_continue());
  large.stream_body();
  EXPECT_EQ(large.feed({}), State::kFailed);
  EXPECT_EQ(large.error_status(), 413);
  HttpParser chunked(kLimits);
  ASSERT_EQ(chunked.feed("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"),
            State::kHeaders);
  chunked.stream_body();
  ASSERT_EQ(chunked.feed("f\r\n0123456789abcde\r\n"), State::kNeedMore);
  EXPECT_EQ(chunked.take_piece(), "0123456789abcde");
  EXPECT_EQ(chunked.feed("f\r\n0123456789abcde\r\n"), State::kFailed);
  EXPECT_EQ(chunked.error_status(), 413);
}

TEST(HttpParser, ChunkedBodiesAreJoined) {
  const std::string text =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;ext=1\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
  for (const size_t step : {size_t{1}, size_t{7}, text.size()}) {
    Reader reader;
    State state = State::kNeedMore;
    for (size_t i = 0; i < text.size(); i += step) {
      ASSERT_EQ(state, State::kNeedMore);
      state = reader.feed(text.substr(i, step));
    }
    ASSERT_EQ(state, State::kComplete) << reader.parser.error_reason();
    EXPECT_EQ(reader.request.body, "abc0123456789");
  }
}

TEST(HttpParser, AnEmptyChunkedBodyMayComeByteByByte) {
  Reader reader;
  const std::string text =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    ASSERT_EQ(reader.feed(text.substr(i, 1)), State::kNeedMore) << i;
  }
  ASSERT_EQ(reader.feed("\n"), State::kComplete);
  EXPECT_EQ(reader.request.body, "");
}

TEST(HttpParser, RequestsSentAheadAreKept) {
  Reader reader;
  ASSERT_EQ(reader.feed("GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.0\r\n\r\nGET /c"),
            State::kComplete);
  EXPECT_EQ(reader.request.path, "/a");
  reader.parser.hold(" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  ASSERT_EQ(reader.feed({}), State::kComplete);
  const HttpRequest second = reader.request;
  EXPECT_EQ(second.path, "/b");
  EXPECT_EQ(second.version, 10);
  EXPECT_FALSE(second.keep_alive);
  ASSERT_EQ(reader.feed({}), State::kComplete);
  EXPECT_FALSE(reader.request.keep_alive);
  EXPECT_EQ(reader.feed({}), State::kNeedMore);
}

TEST(HttpParser, HeadersAreReportedBeforeTheBody) {
  HttpParser parser({});
  ASSERT_EQ(parser.feed("POST /a?b HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n"
                        "Expect: 100-Continue\r\n\r\nab"),
            State::kHeaders);
  EXPECT_TRUE(parser.expects_continue());
  EXPECT_EQ(parser.head().path, "/a");
  EXPECT_EQ(parser.body_bytes(), 0U);
  EXPECT_EQ(parser.feed({}), State::kNeedMore);
  EXPECT_EQ(parser.body_bytes(), 2U);
  EXPECT_EQ(parser.feed("cd"), State::kComplete);
  EXPECT_EQ(parser.take_body(), "abcd");
  ASSERT_EQ(parser.feed("POST / HTTP/1.0\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"),
            State::kHeaders);
  EXPECT_FALSE(parser.expects_continue());
}

TEST(HttpParser, ASkippedBodyIsParsedButNotKept) {
  for (const std::string_view text :
       {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabcdef",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        "3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n"}) {
    HttpParser parser({});
    State state = State::kNeedMore;
    for (const char byte : text) {
      state = parser.feed({&byte, 1});
      if (state == State::kHeaders) {
        parser.skip_body();
      }
      EXPECT_EQ(parser.body_bytes(), 0U);
    }
    ASSERT_EQ(state, State::kComplete);
    EXPECT_EQ(parser.take_body(), "");
  }
}

TEST(HttpParser, ABodyInChunksGrowsWithoutCopies) {
  HttpParser parser({});
  ASSERT_EQ(parser.feed("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"),
            State::kHeaders);
  const std::string chunk = "10000\r\n" + std::string(65536, 'a') + "\r\n";
  for (int i = 0; i < 128; ++i) {
    ASSERT_EQ(parser.feed(chunk), State::kNeedMore);
  }
  ASSERT_EQ(parser.feed("0\r\n\r\n"), State::kComplete);
  const std::string body = parser.take_body();
  EXPECT_EQ(body.size(), 128U * 65536);
  EXPECT_EQ(body.capacity(), HttpLimits().max_body_bytes);
}

TEST(HttpParser, TargetsMayNameTheHost) {
  for (const auto& [target, path] :
       {std::pair("http://h/v1/models?a=b", "/v1/models"), std::pair("HTTPS://h:8000/a", "/a"),
        std::pair("http://h", "/"), std::pair("http://h?a=/b", "/"),
        std::pair("/a/http://b", "/a/http://b"), std::pair("/a?http://b/c", "/a")}) {
    Reader reader;
    ASSERT_EQ(reader.feed(fmt::format("GET {} HTTP/1.1\r\nHost: h\r\n\r\n", target)),
              State::kComplete);
    EXPECT_EQ(reader.request.path, path) << target;
  }
}

// What a proxy may read as a body and this server as the next request, or the other way round.
TEST(HttpParser, CodingsOtherThanChunkedAreRefused) {
  const std::string next = "\r\n\r\n0\r\n\r\nGET /version HTTP/1.1\r\nHost: h\r\n\r\n";
  for (const char* coding :
       {"identity", "gzip", "xchunked", "chunked, identity", "chunked, chunked", "gzip, chunked",
        "chunked;q=1", "chunked,", ", chunked",
        "\x0b"
        "chunked",
        "\"chunked\"", ""}) {
    Reader reader;
    ASSERT_EQ(reader.feed("POST /ping HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: " +
                          std::string(coding) + next),
              State::kFailed)
        << coding;
    EXPECT_EQ(reader.parser.error_status(), 400) << coding;
  }
  Reader old;
  ASSERT_EQ(old.feed("POST /ping HTTP/1.0\r\nConnection: keep-alive\r\n"
                     "Transfer-Encoding: chunked" +
                     next),
            State::kFailed);
  EXPECT_EQ(old.parser.error_status(), 400);
  Reader good;
  EXPECT_EQ(good.feed("POST /ping HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \t Chunked " + next),
            State::kComplete);
}

TEST(HttpParser, OneEmptyLineBeforeARequestIsIgnored) {
  const std::string request = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\na";
  Reader whole;
  EXPECT_EQ(whole.feed("\r\n" + request + "\r\n"), State::kComplete);
  EXPECT_EQ(whole.feed({}), State::kNeedMore);
  EXPECT_FALSE(whole.parser.has_begun());
  EXPECT_EQ(whole.feed(request), State::kComplete);
  EXPECT_EQ(whole.request.body, "a");
  Reader bytes;
  const std::string text = "\r\n" + request;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    ASSERT_EQ(bytes.feed(text.substr(i, 1)), State::kNeedMore) << i;
  }
  EXPECT_EQ(bytes.feed(text.substr(text.size() - 1)), State::kComplete);
  for (const std::string_view bad : {"\r\n\r\n", "\rG", "\n", "\r\n\r"}) {
    Reader reader;
    EXPECT_EQ(reader.feed(std::string(bad) + request), State::kFailed) << bad;
    EXPECT_EQ(reader.parser.error_status(), 400);
  }
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
      {"GET http:///a HTTP/1.1\r\nHost: a\r\n\r\n", 400},  // a host of no bytes
      {"GET ?a HTTP/1.1\r\nHost: a\r\n\r\n", 400},         // no path
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
    Reader reader({.max_header_bytes = 1024, .max_body_bytes = 500});
    ASSERT_EQ(reader.feed(bad.text), State::kFailed) << bad.text;
    EXPECT_EQ(reader.parser.error_status(), bad.status)
        << bad.text << ": " << reader.parser.error_reason();
    EXPECT_FALSE(reader.parser.error_reason().empty());
    EXPECT_EQ(reader.feed("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), State::kFailed);
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
