// The generator before a server of canned bytes on a real socket.
#include "loadgen/generator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/write.hpp>
#include <functional>
#include <thread>

namespace tandem::loadgen {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// Answers the n-th request it hears with what `script` gives for n; an empty answer closes.
class CannedServer {
 public:
  explicit CannedServer(std::function<std::string(int)> script)
      : script_(std::move(script)),
        acceptor_(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0)) {
    thread_ = std::thread([this] { serve(); });
  }
  ~CannedServer() {
    stopping_ = true;
    boost::system::error_code ignored;
    tcp::socket poke(io_);
    poke.connect(acceptor_.local_endpoint(), ignored);
    poke.close(ignored);
    thread_.join();
  }
  uint16_t port() const { return acceptor_.local_endpoint().port(); }
  int accepted() const { return accepted_; }

 private:
  void serve() {
    boost::system::error_code error;
    while (!stopping_) {
      tcp::socket socket(io_);
      acceptor_.accept(socket, error);
      ++accepted_;
      answer(socket);
    }
  }
  void answer(tcp::socket& socket) {
    boost::system::error_code error;
    asio::streambuf buffer;
    while (!stopping_) {
      const size_t head = asio::read_until(socket, buffer, "\r\n\r\n", error);
      if (error) {
        return;
      }
      const std::string text(asio::buffers_begin(buffer.data()),
                             asio::buffers_begin(buffer.data()) + static_cast<ptrdiff_t>(head));
      const size_t length = std::stoul(text.substr(text.find("Content-Length: ") + 16));
      while (buffer.size() < head + length && !error) {
        asio::read(socket, buffer, asio::transfer_at_least(1), error);
      }
      buffer.consume(head + length);
      const std::string answer = script_(heard_++);
      if (answer.empty()) {
        return;
      }
      asio::write(socket, asio::buffer(answer), error);
      if (answer.find("Connection: close") != std::string::npos) {
        return;
      }
    }
  }

  std::function<std::string(int)> script_;
  asio::io_context io_;
  tcp::acceptor acceptor_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> accepted_ = 0;
  int heard_ = 0;
  std::thread thread_;
};

std::string stream_answer(const std::string& body) {
  return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

const std::string kGood =
    "data: {\"choices\":[{\"text\":\"a\"}]}\n\n"
    "data: {\"choices\":[{\"text\":\"b\"}]}\n\n"
    "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":2}}\n\n"
    "data: [DONE]\n\n";

std::vector<RequestRecord> run_against(CannedServer& server, size_t requests,
                                       int64_t max_concurrency = 1) {
  asio::io_context io;
  const SteadyClock clock;
  Client client(io, {}, clock);
  EndpointOptions endpoint;
  endpoint.url = {.host = "127.0.0.1", .port = server.port(), .path = ""};
  EXPECT_TRUE(client.resolve(endpoint.url).ok());
  Load load;
  load.groups = {{.name = "g"}};
  load.models = {"m"};
  for (size_t i = 0; i < requests; ++i) {
    load.requests.push_back({0, 0, {.input_tokens = 4, .output_tokens = 2, .prompt = {{i, 4}}}});
  }
  PromptUnits units;
  units.units = {" a", " b"};
  Generator generator(io, client, clock, endpoint, load, units);
  return generator.run(max_concurrency, [](const LiveCounts&) {}).records;
}

TEST(Generator, AnswersAreReadOverOneConnection) {
  CannedServer server([](int) { return stream_answer(kGood); });
  const std::vector<RequestRecord> records = run_against(server, 5);
  for (const RequestRecord& record : records) {
    EXPECT_EQ(record.outcome, Outcome::kDone) << record.reason << record.message;
    EXPECT_EQ(record.chunk_times.size(), 2);
    EXPECT_EQ(record.output_tokens(), 2);
    EXPECT_EQ(record.finish_reason, "length");
  }
  EXPECT_LE(server.accepted(), 2) << "one to find the address, one for the requests";
}

TEST(Generator, AnEndTokenThatTheServerCountsIsATokenOfItsClosingChunk) {
  // As vLLM sends an answer whose first token is its last.
  const std::string body =
      "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n"
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":1}}\n\n"
      "data: [DONE]\n\n";
  CannedServer server([&](int) { return stream_answer(body); });
  const std::vector<RequestRecord> records = run_against(server, 1);
  EXPECT_EQ(records[0].outcome, Outcome::kDone) << records[0].reason;
  EXPECT_EQ(records[0].chunk_times.size(), 1U);
  EXPECT_EQ(records[0].finish_at, records[0].chunk_times[0]);
}

TEST(Generator, EveryFailureHasItsReasonAndTheRunGoesOn) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 34\r\n\r\n{\"error\":{\"message\":\"too "
       "busy\"}}  ",
       "http_429"},
      {"nonsense\r\n\r\n", "bad_http"},
      {stream_answer("data: hello\n\n"), "bad_stream"},
      {stream_answer("data: {\"error\":{\"message\":\"x\"}}\n\n"), "stream_error"},
      {stream_answer("data: {\"choices\":[{\"text\":\"a\"}]}\n\n"), "cut"},
      {stream_answer("data: [DONE]\n\n"), "empty"},
      {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
       "no_stream"},
      {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99\r\nConnection: "
       "close\r\n\r\ndata: ",
       "closed"},
      {stream_answer(kGood), ""}};
  CannedServer server([&](int n) { return cases[static_cast<size_t>(n)].first; });
  const std::vector<RequestRecord> records = run_against(server, cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(records[i].reason, cases[i].second) << records[i].message;
  }
  EXPECT_EQ(records[0].message, "too busy");
  EXPECT_EQ(records.back().outcome, Outcome::kDone);
}

TEST(Generator, AConnectionThatTheServerClosedMeanwhileIsReplaced) {
  CannedServer server([](int n) { return n == 1 ? "" : stream_answer(kGood); });
  const std::vector<RequestRecord> records = run_against(server, 3);
  for (const RequestRecord& record : records) {
    EXPECT_EQ(record.outcome, Outcome::kDone) << record.reason << record.message;
  }
}

}  // namespace
}  // namespace tandem::loadgen
