// The bytes of one connection, plain or under TLS, for an owner that waits until it may read, then
// reads what is there. A plain connection pays one test of a pointer for the choice. Threads: the
// owner's only. Ownership: handlers must keep the Transport alive; after close() they are called
// with an error.
#pragma once

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/system/error_code.hpp>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "api/tls.h"

namespace tandem::api {

class Transport {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Parts = std::array<boost::asio::const_buffer, 4>;

  // `tls` null: plain. It is needed by the constructor only.
  Transport(Socket socket, const TlsContext* tls);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  [[nodiscard]] Socket& socket() { return socket_; }
  [[nodiscard]] bool encrypted() const { return encrypted_; }
  // The client and the server have not agreed on keys yet (never so without TLS).
  [[nodiscard]] bool in_handshake() const;

  // handler(error): read_some() may find something.
  template <class Handler>
  void async_wait_readable(Handler handler) {
    socket_.async_wait(reads_when_writable_ ? Socket::wait_write : Socket::wait_read,
                       std::move(handler));
  }
  // What is there now; would_block when nothing is, eof at the client's end.
  size_t read_some(std::span<char> into, boost::system::error_code& error);

  // handler(error, bytes) once all parts are written; they must last until then. One at a time.
  template <class Handler>
  void async_write(const Parts& parts, Handler handler) {
    if (!encrypted_) {
      boost::asio::async_write(socket_, parts, std::move(handler));
    } else {
      write_encrypted(parts, [handler = std::move(handler)](
                                 const boost::system::error_code& error) { handler(error, 0); });
    }
  }

  // Tells the client that no more will come.
  void shutdown_send();
  void close();

 private:
  using Done = std::function<void(const boost::system::error_code& error)>;
  struct FreeSession {
    void operator()(ssl_st* session) const;
  };
  void write_encrypted(const Parts& parts, Done done);
  void go_on_writing(Done done);

  Socket socket_;
  const bool encrypted_;
  bool reads_when_writable_ = false;  // the handshake waits for room to send
  std::unique_ptr<ssl_st, FreeSession> session_;
  std::string pending_;  // plain text being written under TLS
  size_t written_ = 0;   // of pending_
};

}  // namespace tandem::api
