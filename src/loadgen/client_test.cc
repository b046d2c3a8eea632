#include "loadgen/client.h"

#include <gtest/gtest.h>

#include <boost/asio/ip/address_v4.hpp>
#include <boost/asio/read.hpp>
#include <csignal>
#include <thread>

namespace tandem::loadgen {
namespace {

namespace asio = boost::asio;

// A port on which one connection is accepted.
class Port {
 public:
  explicit Port(asio::io_context& io) : acceptor_(io, {asio::ip::address_v4::loopback(), 0}) {}
  [[nodiscard]] Url url(const char* scheme) const {
    return parse_url(std::string(scheme) +
                     "://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port()))
        .value();
  }
  asio::ip::tcp::acceptor& acceptor() { return acceptor_; }

 private:
  asio::ip::tcp::acceptor acceptor_;
};

TEST(Client, AServerThatHangsUpDuringAnHttpsRequestDoesNotEndTheProcess) {
  std::signal(SIGPIPE, SIG_DFL);
  asio::io_context io;
  Port port(io);
  const SteadyClock clock;
  Client client(io, {}, clock);
  ASSERT_TRUE(client.resolve(port.url("https")).ok());
  EXPECT_EQ(std::signal(SIGPIPE, SIG_IGN), SIG_IGN);
}

TEST(Client, HttpsToAServerWithoutTlsIsAProtocolError) {
  asio::io_context io;
  Port port(io);
  const SteadyClock clock;
  Client client(io, {}, clock);
  const Url url = port.url("https");
  ASSERT_TRUE(client.resolve(url).ok());
  std::thread server([&port] {
    asio::io_context own;
    asio::ip::tcp::socket probe(own);
    asio::ip::tcp::socket socket(own);
    port.acceptor().accept(probe);  // of resolve()
    port.acceptor().accept(socket);
    boost::system::error_code ignored;
    asio::write(socket, asio::buffer(std::string_view("HTTP/1.1 400 Bad Request\r\n\r\n")),
                ignored);
    char byte = 0;
    while (socket.read_some(asio::buffer(&byte, 1), ignored) > 0) {
    }
  });
  const auto answer = ask(io, client, http_request("GET", url, "/v1/models", "", ""));
  server.join();
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().message.find("Protocol error"), std::string::npos)
      << answer.error().message;
}

}  // namespace
}  // namespace tandem::loadgen
