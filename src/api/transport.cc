#include "api/transport.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

#include "base/check.h"

namespace tandem::api {

namespace asio = boost::asio;
using boost::system::error_code;

void Transport::FreeSession::operator()(ssl_st* session) const { SSL_free(session); }

Transport::Transport(Socket socket, const TlsContext* tls)
    : socket_(std::move(socket)), encrypted_(tls != nullptr) {
  if (encrypted_) {
    session_.reset(tls->new_session(socket_.native_handle()));
  }
}

Transport::~Transport() = default;

bool Transport::in_handshake() const {
  return session_ != nullptr && SSL_is_init_finished(session_.get()) == 0;
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
    const int reason = SSL_get_error(session_.get(), result);
    if (reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE) {
      socket_.async_wait(reason == SSL_ERROR_WANT_READ ? Socket::wait_read : Socket::wait_write,
                         [this, done = std::move(done)](const error_code& failed) mutable {
                           if (failed) {
                             done(failed);
                           } else {
                             go_on_writing(std::move(done));
                           }
                         });
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
  asio::post(socket_.get_executor(), [done = std::move(done), error] { done(error); });
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

}  // namespace tandem::api
