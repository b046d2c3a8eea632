// The server's side of TLS: a certificate and its key, read and checked together. OpenSSL does the
// rest; TLS 1.2 and later, forward-secret ciphers, no renegotiation, no session cache. Threads:
// const and shared. Errors name the file and the cure.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "net/transport.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace tandem::api {

enum class ClientCertificates { kNotAsked, kOptional, kRequired };

// Paths of PEM files.
struct TlsFiles {
  std::string certificate;         // the server's, then those that sign it; empty: no TLS
  std::string key;                 // empty: it lies in the certificate's file
  std::string client_authorities;  // who signs the certificates of clients
  ClientCertificates client_certificates = ClientCertificates::kNotAsked;

  // True: the server must not speak plain HTTP. load() may still refuse the files.
  [[nodiscard]] bool wanted() const {
    return !certificate.empty() || !key.empty() || !client_authorities.empty() ||
           client_certificates != ClientCertificates::kNotAsked;
  }
};

class TlsContext {
 public:
  static Result<std::unique_ptr<TlsContext>> load(const TlsFiles& files);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // Until the certificate expires; at load it has not.
  [[nodiscard]] std::chrono::hours valid_for() const { return valid_for_; }
  // Waits for a client's handshake; null when memory is out. It may outlive the TlsContext.
  [[nodiscard]] net::TlsSession new_session() const;

 private:
  TlsContext();
  Status read_certificate(const TlsFiles& files);
  Status read_key(const TlsFiles& files);
  Status read_authorities(const TlsFiles& files);

  ssl_ctx_st* context_;
  std::chrono::hours valid_for_{0};
};

}  // namespace tandem::api
