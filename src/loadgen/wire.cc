#include "loadgen/wire.h"

#include <fmt/format.h>
#include <openssl/ssl.h>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>

namespace tandem::loadgen {

namespace ssl = boost::asio::ssl;

Result<std::unique_ptr<TlsClient>> TlsClient::make(const TlsTrust& trust, std::string host) {
  std::unique_ptr<TlsClient> tls(new TlsClient());
  tls->host_ = std::move(host);
  tls->check_ = trust.check;
  SSL_CTX_set_min_proto_version(tls->context_.native_handle(), TLS1_2_VERSION);
  Wire::error_code error;
  if (trust.check == CertificateCheck::kOff) {
    tls->context_.set_verify_mode(ssl::verify_none, error);
    return tls;
  }
  tls->context_.set_verify_mode(ssl::verify_peer, error);
  if (trust.authorities.empty()) {
    tls->context_.set_default_verify_paths(error);
  } else {
    tls->context_.load_verify_file(trust.authorities, error);
  }
  if (error) {
    return invalid_argument(fmt::format("--cacert {}: {}; give a file of certificates in PEM form",
                                        trust.authorities, error.message()),
                            "cacert");
  }
  return tls;
}

Wire::Wire(boost::asio::io_context& io, TlsClient* tls) : socket_(io) {
  if (tls == nullptr) {
    return;
  }
  stream_.emplace(socket_, tls->context_);
  error_code is_name;
  (void)boost::asio::ip::make_address(tls->host_, is_name);
  if (is_name) {  // an address has no place in the handshake
    SSL_set_tlsext_host_name(stream_->native_handle(), tls->host_.c_str());
  }
  if (tls->check_ == CertificateCheck::kOn) {
    error_code ignored;
    stream_->set_verify_callback(ssl::host_name_verification(tls->host_), ignored);
  }
}

void Wire::close() {
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace tandem::loadgen
