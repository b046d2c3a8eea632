#include "net/transport.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <boost/asio/error.hpp>

#include "base/check.h"

namespace tandem::net {

namespace asio = boost::asio;
using boost::system::error_code;

void FreeTlsSession::operator()(ssl_st* session) const { SSL_free(session); }

Transport::Transport(Socket socket) : socket_(std::move(socket)) {}

Transport::~Transport() = default;

void Transport::secure(TlsSession session) {
  encrypted_ = true;
  session_ = std::move(session);
  if (session_ != nullptr && SSL_set_fd(session_.get(), socket_.native_handle()) != 1) {
    session_.reset();
  }
}

bool Transport::in_handshake() const {
  return session_ != nullptr && SSL_is_init_finished(session_.get()) == 0;
}

bool Transport::distrusts_peer() const {
  return session_ != nullptr && SSL_get_verify_mode(session_.get()) != SSL_VERIFY_NONE &&
         SSL_get_verify_result(session_.get()) != X509_V_OK;
}

bool Transport::has_unread() const {
  return session_ != nullptr && SSL_pending(session_.get()) > 0;
}

bool Transport::wait_for(int result, Done& done, void (Transport::*again)(Done)) {
  const int reason = SSL_get_error(session_.get(), result);
  if (reason != SSL_ERROR_WANT_READ && reason != SSL_ERROR_WANT_WRITE) {
    return false;
  }
  socket_.async_wait(reason == SSL_ERROR_WANT_READ ? Socket::wait_read : Socket::wait_write,
                     [this, again, done = std::move(done)](const error_code& failed) mutable {
                       if (failed) {
                         done(failed);
                       } else {
                         (this->*again)(std::move(done));
                       }
                     });
  return true;
}

void Transport::finish(Done done, const error_code& error) {
  asio::post(socket_.get_executor(), [done = std::move(done), error] { done(error); });
}

void Transport::async_handshake(Done done) {
  error_code error;
  if (session_ == nullptr) {
    error = encrypted_ ? asio::error::operation_aborted : error_code();
  } else {
    ERR_clear_error();
    const int result = SSL_do_handshake(session_.get());
    if (result != 1) {
      if (wait_for(result, done, &Transport::async_handshake)) {
        return;
      }
      error = SSL_get_error(session_.get(), result) == SSL_ERROR_SSL
                  ? boost::system::errc::make_error_code(boost::system::errc::protocol_error)
                  : error_code(asio::error::connection_reset);
    }
  }
  finish(std::move(done), error);
}

size_t Transport::read_some(std::span<char> into, error_code& error) {
  if (!encrypted_) {
    return socket_.read_some(asio::buffer(into.data(), into.size()), error);
  }
  if (session_ == nullptr) {
    error = asio::error::no_memory;
    return 0;
  }
  ERR_clear_error();
  size_t bytes = 0;
  const int result = SSL_read_ex(session_.get(), into.data(), into.size(), &bytes);
  if (result == 1) {
    reads_when_writable_ = false;
    error.clear();
    return bytes;
  }
  const int reason = SSL_get_error(session_.get(), result);
  reads_when_writable_ = reason == SSL_ERROR_WANT_WRITE;
  if (reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE) {
    error = asio::error::would_block;
  } else if (reason == SSL_ERROR_ZERO_RETURN) {
    error = asio::error::eof;
  } else {
    error = asio::error::connection_reset;
  }
  return 0;
}

void Transport::write_encrypted(const Parts& parts, Done done) {
  CHECK(pending_.empty(), "two writes at a time");
  for (const asio::const_buffer& part : parts) {
    pending_.append(static_cast<const char*>(part.data()), part.size());
  }
  written_ = 0;
  go_on_writing(std::move(done));
}

void Transport::go_on_writing(Done done) {
  constexpr size_t kKeptCapacity = 64 * 1024;
  error_code error;
  while (session_ != nullptr && written_ < pending_.size()) {
    ERR_clear_error();
    size_t bytes = 0;
    const int result = SSL_write_ex(session_.get(), pending_.data() + written_,
                                    pending_.size() - written_, &bytes);
    if (result == 1) {
      written_ += bytes;
      continue;
    }
    if (wait_for(result, done, &Transport::go_on_writing)) {
      return;
    }
    error = asio::error::connection_reset;
    break;
  }
  if (session_ == nullptr) {
    error = asio::error::operation_aborted;
  }
  pending_.clear();
  if (pending_.capacity() > kKeptCapacity) {
    pending_.shrink_to_fit();
  }
  finish(std::move(done), error);
}

void Transport::shutdown_send() {
  if (session_ != nullptr && !in_handshake()) {
    ERR_clear_error();
    SSL_shutdown(session_.get());
  }
  error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

void Transport::close() {
  session_.reset();
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace tandem::net
