// HTTP/1.1 connections to one server, plain or TLS, kept alive and used again. A request takes a
// connection that is idle, or opens one. Threads: one, that which runs the io_context.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "loadgen/tls_client.h"
#include "loadgen/url.h"

namespace tandem::loadgen {

// Hears of one answer. Owned by the caller; must live until on_end().
class AnswerListener {
 public:
  virtual ~AnswerListener() = default;
  virtual void on_header(int status, std::string_view content_type) = 0;
  // False: the answer is of no use; the connection is closed and on_end() hears "bad_stream".
  virtual bool on_body(std::string_view bytes, Nanos now) = 0;
  // Last call. `failure` is empty after a whole answer, else one word (connect, timeout, closed,
  // bad_http, bad_stream, interrupted) with `message` saying more. May start another request.
  virtual void on_end(std::string_view failure, std::string_view message, Nanos now) = 0;
};

struct ClientOptions {
  Nanos silence = std::chrono::minutes(5);   // without a byte from the server: timeout
  Nanos connect = std::chrono::seconds(10);  // and the handshake of TLS
  TlsTrust trust;                            // for https
};

class Client {
 public:
  Client(boost::asio::io_context& io, const ClientOptions& options, const Clock& clock);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Looks the host up. Call once, before anything else. With https the process ignores SIGPIPE from
  // then on.
  Status resolve(const Url& url);
  // `request` is a whole HTTP/1.1 request.
  void send(std::string request, AnswerListener& listener);
  // Ends all requests under way with "interrupted" and closes all connections.
  void interrupt();
  // Ends requests that have been silent too long; call now and then.
  void check_silence();

  [[nodiscard]] int64_t connections_opened() const { return opened_; }

 private:
  class Connection;
  void forget(Connection& connection);

  boost::asio::io_context& io_;
  ClientOptions options_;
  const Clock& clock_;
  boost::asio::ip::tcp::endpoint endpoint_;
  std::unique_ptr<TlsClient> tls_;                        // null: http
  std::vector<std::shared_ptr<Connection>> connections_;  // all that are open
  std::vector<std::shared_ptr<Connection>> idle_;         // the last used stands last
  int64_t opened_ = 0;
};

// A request's head and body as bytes. `headers` are whole lines that end in CRLF.
std::string http_request(std::string_view method, const Url& url, std::string_view target,
                         std::string_view headers, std::string_view body);

struct WholeAnswer {
  int status = 0;
  std::string body;
};
// Sends one request and waits for all of its answer; runs `io` until then.
Result<WholeAnswer> ask(boost::asio::io_context& io, Client& client, std::string request);

}  // namespace tandem::loadgen
