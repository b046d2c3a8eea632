#include "loadgen/http_response.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::loadgen {
namespace {

struct Parsed {
  bool ok = true;
  bool complete = false;
  int status = 0;
  bool keep_alive = false;
  std::string type;
  std::string body;
  friend bool operator==(const Parsed&, const Parsed&) = default;
};

Parsed parse(const std::vector<std::string_view>& pieces, bool ends = false) {
  HttpResponse response;
  Parsed parsed;
  for (const std::string_view piece : pieces) {
    parsed.ok =
        parsed.ok && response.feed(piece, [&](std::string_view body) { parsed.body += body; }).ok();
  }
  if (ends) {
    parsed.ok = parsed.ok && response.end_of_stream().ok();
  }
  parsed.complete = response.is_complete();
  if (response.has_header()) {
    parsed.status = response.status();
    parsed.type = response.content_type();
  }
  parsed.keep_alive = parsed.complete && response.keep_alive();
  return parsed;
}

constexpr std::string_view kChunked =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    "8\r\ndata: a\n\r\n1\r\n\n\r\n8;x=y\r\ndata: b\n\r\n0\r\n\r\n";
constexpr std::string_view kSized =
    "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nContent-Length: 5\r\n"
    "Connection: close\r\n\r\nhello";

TEST(HttpResponse, EveryCutOfAChunkedAnswerGivesTheSameBody) {
  const Parsed whole = parse({kChunked});
  EXPECT_EQ(whole.body, "data: a\n\ndata: b\n");
  EXPECT_EQ(whole.status, 200);
  EXPECT_EQ(whole.type, "text/event-stream");
  EXPECT_TRUE(whole.ok && whole.complete && whole.keep_alive);
  for (size_t cut = 0; cut <= kChunked.size(); ++cut) {
    EXPECT_EQ(parse({kChunked.substr(0, cut), kChunked.substr(cut)}), whole) << cut;
  }
}

TEST(HttpResponse, EveryCutOfASizedAnswerGivesTheSameBody) {
  const Parsed whole = parse({kSized});
  EXPECT_EQ(whole.body, "hello");
  EXPECT_EQ(whole.status, 429);
  EXPECT_FALSE(whole.keep_alive);
  for (size_t cut = 0; cut <= kSized.size(); ++cut) {
    EXPECT_EQ(parse({kSized.substr(0, cut), kSized.substr(cut)}), whole) << cut;
  }
}

TEST(HttpResponse, ABodyWithoutALengthEndsWithTheConnection) {
  const Parsed open = parse({"HTTP/1.1 200 OK\r\n\r\n", "some", "thing"});
  EXPECT_FALSE(open.complete);
  const Parsed closed = parse({"HTTP/1.1 200 OK\r\n\r\n", "some", "thing"}, true);
  EXPECT_TRUE(closed.ok && closed.complete);
  EXPECT_EQ(closed.body, "something");
}

TEST(HttpResponse, ACutAnswerIsAnErrorAtTheEndOfTheConnection) {
  for (size_t cut = 0; cut < kChunked.size(); ++cut) {
    EXPECT_FALSE(parse({kChunked.substr(0, cut)}, true).ok) << cut;
  }
}

TEST(HttpResponse, WhatIsNotHttpIsAnError) {
  for (const std::string& text : std::vector<std::string>{
           "hello\r\n\r\n", "HTTP/1.1 abc OK\r\n\r\n", "HTTP/9.9 200 OK\r\n\r\n",
           "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
           std::string(kSized) + "more"}) {
    EXPECT_FALSE(parse({text}).ok) << text;
  }
  EXPECT_FALSE(parse({"HTTP/1.1 200 OK\r\nX: " + std::string(200000, 'a')}).ok);
}

TEST(HttpResponse, AfterResetTheNextAnswerIsRead) {
  HttpResponse response;
  std::string body;
  const auto take = [&](std::string_view piece) { body += piece; };
  ASSERT_TRUE(response.feed(kChunked, take).ok());
  response.reset();
  EXPECT_FALSE(response.has_begun());
  body.clear();
  ASSERT_TRUE(response.feed(kSized, take).ok());
  EXPECT_EQ(body, "hello");
}

}  // namespace
}  // namespace tandem::loadgen
