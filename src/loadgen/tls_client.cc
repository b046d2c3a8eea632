#include "loadgen/tls_client.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <boost/asio/ip/address.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace tandem::loadgen {

TlsClient::TlsClient(std::string host)
    : context_(SSL_CTX_new(TLS_client_method())), host_(std::move(host)) {
  CHECK(context_ != nullptr, "OpenSSL gives no context");
  SSL_CTX_set_min_proto_version(context_, TLS1_2_VERSION);
  SSL_CTX_set_mode(context_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
}

TlsClient::~TlsClient() { SSL_CTX_free(context_); }

Result<std::unique_ptr<TlsClient>> TlsClient::make(const TlsTrust& trust, std::string host) {
  std::unique_ptr<TlsClient> tls(new TlsClient(std::move(host)));
  if (trust.check == CertificateCheck::kOff) {
    SSL_CTX_set_verify(tls->context_, SSL_VERIFY_NONE, nullptr);
    return tls;
  }
  SSL_CTX_set_verify(tls->context_, SSL_VERIFY_PEER, nullptr);
  if (trust.authorities.empty()) {
    SSL_CTX_set_default_verify_paths(tls->context_);
    return tls;
  }
  std::FILE* file = std::fopen(trust.authorities.c_str(), "rb");
  const char* problem =
      file == nullptr ? std::strerror(errno) : "it holds no certificate in PEM form";
  const bool loaded =
      file != nullptr && SSL_CTX_load_verify_file(tls->context_, trust.authorities.c_str()) == 1;
  if (file != nullptr) {
    std::fclose(file);
  }
  if (!loaded) {
    ERR_clear_error();
    return invalid_argument(fmt::format("--cacert {}: {}; give a file of certificates in PEM form",
                                        trust.authorities, problem),
                            "cacert");
  }
  return tls;
}

net::TlsSession TlsClient::new_session() const {
  net::TlsSession session(SSL_new(context_));
  if (session == nullptr) {
    return nullptr;
  }
  const std::string address = host_.substr(0, host_.find('%'));  // of one, without its zone
  boost::system::error_code is_name;
  (void)boost::asio::ip::make_address(host_, is_name);
  bool set = false;
  if (is_name) {
    set = SSL_set_tlsext_host_name(session.get(), host_.c_str()) == 1 &&
          SSL_set1_host(session.get(), host_.c_str()) == 1;
  } else {  // an address has no place in the handshake
    set = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session.get()), address.c_str()) == 1;
  }
  if (!set) {
    return nullptr;
  }
  SSL_set_connect_state(session.get());
  return session;
}

}  // namespace tandem::loadgen
