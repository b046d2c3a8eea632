// The bytes of one connection, plain or under TLS, of a server or a client. The owner waits until
// it may read, then reads what is there. A plain connection pays one test of a pointer for the
// choice. The process must ignore SIGPIPE, because OpenSSL writes to sockets without asking for
// silence. Threads: the owner's only. Ownership: handlers must keep the Transport alive; after
// close() they are called with an error.
#pragma once

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/system/error_code.hpp>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

struct ssl_st;  // OpenSSL's SSL

namespace tandem::net {

struct FreeTlsSession {
  void operator()(ssl_st* session) const;
};
// Of either side, set to connect or to accept; it is given its socket by the Transport.
using TlsSession = std::unique_ptr<ssl_st, FreeTlsSession>;

class Transport {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Parts = std::array<boost::asio::const_buffer, 4>;
  using Done = std::function<void(const boost::system::error_code& error)>;

  explicit Transport(Socket socket);  // plain, until secure()
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // TLS from the next byte on. The socket is open and does not block. Null, for want of memory:
  // reading and writing fail.
  void secure(TlsSession session);

  [[nodiscard]] Socket& socket() { return socket_; }
  [[nodiscard]] bool encrypted() const { return encrypted_; }
  // The two sides have not agreed on keys yet (never so without TLS).
  [[nodiscard]] bool in_handshake() const;
  // The peer's certificate was checked, and is not to be trusted.
  [[nodiscard]] bool distrusts_peer() const;

  // done(error) once the two sides have agreed on keys. A read or write without it makes the
  // handshake first.
  void async_handshake(Done done);

  // handler(error): read_some() may find something.
  template <class Handler>
  void async_wait_readable(Handler handler) {
    if (has_unread()) {
      boost::asio::post(socket_.get_executor(), [handler = std::move(handler)]() mutable {
        handler(boost::system::error_code());
      });
      return;
    }
    socket_.async_wait(reads_when_writable_ ? Socket::wait_write : Socket::wait_read,
                       std::move(handler));
  }
  // What is there now; would_block when nothing is, eof at the peer's end.
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

  // Tells the peer that no more will come.
  void shutdown_send();
  void close();

 private:
  // Bytes that OpenSSL holds already; the socket knows nothing of them.
  [[nodiscard]] bool has_unread() const;
  // If a call of OpenSSL with this result waits for the socket: `again` continues, or `done` gets
  // the error. False: it does not wait.
  bool wait_for(int result, Done& done, void (Transport::*again)(Done));
  void write_encrypted(const Parts& parts, Done done);
  void go_on_writing(Done done);
  void finish(Done done, const boost::system::error_code& error);

  Socket socket_;
  bool encrypted_ = false;
  bool reads_when_writable_ = false;  // the handshake waits for room to send
  TlsSession session_;
  std::string pending_;  // plain text being written under TLS
  size_t written_ = 0;   // of pending_
};

}  // namespace tandem::net
