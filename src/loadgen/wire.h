// The bytes of one connection to a server: TCP, or TLS over it. Handlers are Asio's; while one is
// outstanding it keeps the wire alive. Certificates are checked against the host's name and the
// authorities given, unless that is turned off. Threads: one, that which runs the io_context.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/result.h"

namespace tandem::loadgen {

enum class CertificateCheck : uint8_t { kOn, kOff };

struct TlsTrust {
  std::string authorities;  // a PEM file of who signs servers; empty: the system's
  CertificateCheck check = CertificateCheck::kOn;
};

// What all TLS connections to one host share.
class TlsClient {
 public:
  static Result<std::unique_ptr<TlsClient>> make(const TlsTrust& trust, std::string host);

 private:
  friend class Wire;
  TlsClient() = default;

  boost::asio::ssl::context context_{boost::asio::ssl::context::tls_client};
  std::string host_;
  CertificateCheck check_ = CertificateCheck::kOn;
};

class Wire : public std::enable_shared_from_this<Wire> {
 public:
  using error_code = boost::system::error_code;

  // `tls` may be null: plain TCP. It must outlive the wire.
  Wire(boost::asio::io_context& io, TlsClient* tls);

  // TCP and, with TLS, its handshake. handler(error_code)
  template <class Handler>
  void connect(const boost::asio::ip::tcp::endpoint& endpoint, Handler handler) {
    socket_.async_connect(endpoint, [self = shared_from_this(), handler = std::move(handler)](
                                        const error_code& error) mutable {
      error_code ignored;
      self->socket_.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
      if (error || !self->stream_) {
        handler(error);
        return;
      }
      self->stream_->async_handshake(boost::asio::ssl::stream_base::client,
                                     [self, handler = std::move(handler)](
                                         const error_code& failed) mutable { handler(failed); });
    });
  }

  // handler(error_code, bytes). `buffer` must live until then.
  template <class Buffer, class Handler>
  void write(const Buffer& buffer, Handler handler) {
    auto held = [self = shared_from_this(), handler = std::move(handler)](
                    const error_code& error, size_t bytes) mutable { handler(error, bytes); };
    if (stream_) {
      boost::asio::async_write(*stream_, buffer, std::move(held));
    } else {
      boost::asio::async_write(socket_, buffer, std::move(held));
    }
  }
  template <class Buffer, class Handler>
  void read_some(const Buffer& buffer, Handler handler) {
    auto held = [self = shared_from_this(), handler = std::move(handler)](
                    const error_code& error, size_t bytes) mutable { handler(error, bytes); };
    if (stream_) {
      stream_->async_read_some(buffer, std::move(held));
    } else {
      socket_.async_read_some(buffer, std::move(held));
    }
  }

  void close();

 private:
  boost::asio::ip::tcp::socket socket_;
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> stream_;
};

}  // namespace tandem::loadgen
