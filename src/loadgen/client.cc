#include "loadgen/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <csignal>
#include <utility>

#include "base/check.h"
#include "loadgen/http_response.h"

namespace tandem::loadgen {

namespace asio = boost::asio;
using boost::system::error_code;

// Alive as long as an operation of its socket is.
class Client::Connection : public std::enable_shared_from_this<Connection> {
 public:
  explicit Connection(Client& client) : client_(&client) {}

  void send(std::string request, AnswerListener& listener) {
    CHECK(listener_ == nullptr, "connection {} is busy", fmt::ptr(this));
    request_ = std::move(request);
    listener_ = &listener;
    tried_again_ = false;
    heard_ = client_->clock_.now();
    if (transport_ != nullptr) {
      used_before_ = true;
      write();
      return;
    }
    connect();
  }

  void check_silence(Nanos now) {
    const Nanos limit = connecting_ ? client_->options_.connect : client_->options_.silence;
    if (listener_ != nullptr && now - heard_ > limit) {
      end(connecting_ ? "connect" : "timeout",
          fmt::format("nothing came for {} s", to_seconds(limit)));
    }
  }

  void interrupt() { end("interrupted", "the run was ended"); }

  void close() {
    if (transport_ != nullptr) {
      transport_->close();
    }
  }

  void orphan() {
    listener_ = nullptr;
    client_ = nullptr;
    close();
  }

 private:
  // Each handler holds the connection and the transport that it was made for. If the connection has
  // another transport by then, the handler does nothing.
  using Wire = std::shared_ptr<net::Transport>;

  void connect() {
    connecting_ = true;
    transport_ = std::make_shared<net::Transport>(asio::ip::tcp::socket(client_->io_));
    transport_->socket().async_connect(
        client_->endpoint_,
        [self = shared_from_this(), wire = transport_](const error_code& error) {
          if (self->client_ == nullptr || error) {
            self->connected(wire, error);
          } else {
            self->secure(wire);
          }
        });
  }

  void secure(const Wire& wire) {
    error_code ignored;
    wire->socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    wire->socket().non_blocking(true, ignored);
    if (client_->tls_ == nullptr) {
      connected(wire, {});
      return;
    }
    wire->secure(client_->tls_->new_session());
    wire->async_handshake([self = shared_from_this(), wire](const error_code& error) {
      self->connected(wire, error);
    });
  }

  void connected(const Wire& wire, const error_code& error) {
    if (wire != transport_) {
      return;
    }
    connecting_ = false;
    if (listener_ == nullptr) {
      return;
    }
    if (error) {
      end("connect", wire->distrusts_peer()
                         ? "the server's certificate is not trusted or not of this host; give "
                           "who signed it with --cacert, or --insecure to take any"
                         : error.message());
      return;
    }
    ++client_->opened_;
    heard_ = client_->clock_.now();
    write();
    read();
  }

  void write() {
    writing_ = true;
    transport_->async_write(
        {asio::buffer(request_)},
        [self = shared_from_this(), wire = transport_](const error_code&, size_t) {
          // A server may answer and close before it has read all; reading finds that.
          if (wire == self->transport_) {
            self->writing_ = false;
          }
        });
  }

  // One read is always under way, so that a server's close is seen between requests, too.
  void read() {
    transport_->async_wait_readable(
        [self = shared_from_this(), wire = transport_](error_code error) {
          if (wire != self->transport_) {
            return;
          }
          size_t bytes = 0;
          if (!error) {
            bytes = wire->read_some(self->buffer_, error);
          }
          if (error == asio::error::would_block || error == asio::error::try_again) {
            self->read();
            return;
          }
          self->came(error, bytes);
        });
  }

  void came(const error_code& error, size_t bytes) {
    if (client_ == nullptr || error == asio::error::operation_aborted) {
      return;
    }
    const Nanos now = client_->clock_.now();
    heard_ = now;
    if (listener_ == nullptr) {
      leave();  // closed while idle, or an answer to nothing
      return;
    }
    if (error) {
      closed(error);
      return;
    }
    const bool had_header = answer_.has_header();
    // The header is told before the body that comes with it.
    bool useful = true;
    const auto on_body = [&](std::string_view body) {
      tell_header(had_header);
      useful = useful && listener_->on_body(body, now);
    };
    const Status status = answer_.feed({buffer_.data(), bytes}, on_body);
    if (!status.ok()) {
      end("bad_http", status.error().message);
      return;
    }
    if (!useful) {
      end("bad_stream", "the answer was not understood");
      return;
    }
    if (answer_.has_header()) {
      tell_header(had_header);
    }
    if (!answer_.is_complete()) {
      read();
      return;
    }
    complete(now);
  }

  void tell_header(bool had_header) {
    if (!had_header && !header_told_) {
      header_told_ = true;
      listener_->on_header(answer_.status(), answer_.content_type());
    }
  }

  void complete(Nanos now) {
    AnswerListener* listener = std::exchange(listener_, nullptr);
    if (answer_.keep_alive() &&
        !writing_) {  // answered before it had the whole request: use another
      answer_.reset();
      header_told_ = false;
      client_->idle_.push_back(shared_from_this());
      read();
    } else {
      leave();
    }
    listener->on_end({}, {}, now);
  }

  void closed(const error_code& error) {
    if (used_before_ && !answer_.has_begun() && !tried_again_) {
      // The server closed an idle connection just as it was used: ask again on a new one.
      tried_again_ = true;
      used_before_ = false;
      close();
      connect();
      return;
    }
    if (error == asio::error::eof && answer_.end_of_stream().ok()) {
      AnswerListener* listener = std::exchange(listener_, nullptr);
      const Nanos now = client_->clock_.now();
      leave();
      listener->on_end({}, {}, now);
      return;
    }
    end("closed", error == asio::error::eof ? "the server closed the connection" : error.message());
  }

  void end(std::string_view failure, std::string_view message) {
    AnswerListener* listener = std::exchange(listener_, nullptr);
    const Nanos now = client_->clock_.now();
    leave();
    if (listener != nullptr) {
      listener->on_end(failure, message, now);
    }
  }

  void leave() {
    close();
    Client* client = std::exchange(client_, nullptr);
    if (client != nullptr) {
      client->forget(*this);
    }
  }

  Client* client_;  // null once it left
  Wire transport_;  // null until there is something to send
  std::string request_;
  HttpResponse answer_;
  AnswerListener* listener_ = nullptr;  // null: idle
  std::array<char, 64 * 1024> buffer_{};
  Nanos heard_{0};
  bool connecting_ = false;
  bool writing_ = false;
  bool used_before_ = false;
  bool tried_again_ = false;
  bool header_told_ = false;
};

Client::Client(asio::io_context& io, const ClientOptions& options, const Clock& clock)
    : io_(io), options_(options), clock_(clock) {}

Client::~Client() {
  for (const std::shared_ptr<Connection>& connection : connections_) {
    connection->orphan();
  }
}

Status Client::resolve(const Url& url) {
  if (url.scheme == Scheme::kHttps) {
    ASSIGN_OR_RETURN(tls_, TlsClient::make(options_.trust, url.host));
    // OpenSSL writes to sockets without asking for silence (net/transport.h).
    std::signal(SIGPIPE, SIG_IGN);
  }
  error_code error;
  asio::ip::tcp::resolver resolver(io_);
  const auto found = resolver.resolve(url.host, std::to_string(url.port), error);
  if (error || found.empty()) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("the host '{}' is not known: {}", url.host, error.message()),
                 "base-url"};
  }
  // The first that takes a connection: localhost may stand for two families.
  for (const auto& entry : found) {
    asio::ip::tcp::socket probe(io_);
    probe.connect(entry.endpoint(), error);
    if (!error) {
      endpoint_ = entry.endpoint();
      return {};
    }
  }
  return Error{
      ErrorCode::kUnavailable,
      fmt::format("cannot connect to {}: {}; is the server running?", url.text(), error.message()),
      "base-url"};
}

void Client::send(std::string request, AnswerListener& listener) {
  std::shared_ptr<Connection> connection;
  if (idle_.empty()) {
    connection = std::make_shared<Connection>(*this);
    connections_.push_back(connection);
  } else {
    connection = std::move(idle_.back());
    idle_.pop_back();
  }
  connection->send(std::move(request), listener);
}

void Client::interrupt() {
  const auto all = connections_;
  for (const std::shared_ptr<Connection>& connection : all) {
    connection->interrupt();
  }
}

void Client::check_silence() {
  const auto all = connections_;
  for (const std::shared_ptr<Connection>& connection : all) {
    connection->check_silence(clock_.now());
  }
}

void Client::forget(Connection& connection) {
  const auto is_it = [&](const std::shared_ptr<Connection>& other) {
    return other.get() == &connection;
  };
  std::erase_if(idle_, is_it);
  std::erase_if(connections_, is_it);
}

std::string http_request(std::string_view method, const Url& url, std::string_view target,
                         std::string_view headers, std::string_view body) {
  return fmt::format(
      "{} {}{} HTTP/1.1\r\nHost: {}\r\nUser-Agent: tandem-bench\r\nAccept: */*\r\n{}"
      "Content-Length: {}\r\n\r\n{}",
      method, url.path, target, url.authority(), headers, body.size(), body);
}

Result<WholeAnswer> ask(asio::io_context& io, Client& client, std::string request) {
  struct Collector final : AnswerListener {
    void on_header(int status, std::string_view) override { answer.status = status; }
    bool on_body(std::string_view bytes, Nanos) override {
      constexpr size_t kMostBytes = size_t{16} << 20;
      answer.body += bytes;
      return answer.body.size() <= kMostBytes;
    }
    void on_end(std::string_view failure, std::string_view why, Nanos) override {
      ended = true;
      failed = failure;
      message = why;
    }
    WholeAnswer answer;
    bool ended = false;
    std::string failed;
    std::string message;
  };
  Collector collector;
  client.send(std::move(request), collector);
  io.restart();
  while (!collector.ended) {
    io.run_one_for(std::chrono::seconds(1));
    client.check_silence();
  }
  if (!collector.failed.empty()) {
    return Error{
        ErrorCode::kUnavailable,
        fmt::format("the server did not answer ({}): {}", collector.failed, collector.message),
        {}};
  }
  return std::move(collector.answer);
}

}  // namespace tandem::loadgen
