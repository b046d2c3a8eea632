// The client's side of TLS: what all connections to one host share. Certificates are checked
// against the host's name or address and the authorities given, unless that is turned off.
// Threads: const and shared.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "net/transport.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace tandem::loadgen {

enum class CertificateCheck : uint8_t { kOn, kOff };

struct TlsTrust {
  std::string authorities;  // a PEM file of who signs servers; empty: the system's
  CertificateCheck check = CertificateCheck::kOn;
};

class TlsClient {
 public:
  static Result<std::unique_ptr<TlsClient>> make(const TlsTrust& trust, std::string host);
  ~TlsClient();
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  // Ready to connect; null when memory is out. It may outlive the TlsClient.
  [[nodiscard]] net::TlsSession new_session() const;

 private:
  explicit TlsClient(std::string host);

  ssl_ctx_st* context_;
  std::string host_;
};

}  // namespace tandem::loadgen
