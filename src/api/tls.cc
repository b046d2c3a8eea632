#include "api/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/check.h"

namespace tandem::api {

namespace {

constexpr const char* kCertificateFlag = "ssl-certfile";
constexpr const char* kKeyFlag = "ssl-keyfile";
constexpr const char* kAuthoritiesFlag = "ssl-ca-certs";

Error bad_file(const char* flag, const std::string& path, std::string_view problem) {
  return invalid_argument(fmt::format("--{} {}: {}", flag, path, problem), flag);
}

Error no_certificate(const TlsFiles& files) {
  if (!files.key.empty()) {
    return invalid_argument("--ssl-keyfile needs --ssl-certfile, the certificate of that key",
                            kCertificateFlag);
  }
  return invalid_argument(
      "--ssl-cert-reqs and --ssl-ca-certs check the certificates of clients, which needs https: "
      "give the server's certificate and key with --ssl-certfile and --ssl-keyfile",
      kCertificateFlag);
}

// OpenSSL says of a missing file only that it has none; the system says why.
Status check_readable(const char* flag, const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    return bad_file(flag, path,
                    fmt::format("cannot be read: {}; give a PEM file that this user may read",
                                std::strerror(errno)));
  }
  std::fclose(file);
  return {};
}

std::string time_text(const ASN1_TIME* time) {
  BIO* text = BIO_new(BIO_s_mem());
  ASN1_TIME_print(text, time);
  char* begin = nullptr;
  const long bytes = BIO_get_mem_data(text, &begin);
  std::string result(begin, static_cast<size_t>(std::max(bytes, 0L)));
  BIO_free(text);
  return result;
}

// A key under a passphrase would make OpenSSL ask on the terminal.
int no_passphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* asked) {
  *static_cast<bool*>(asked) = true;
  return 0;
}

// HTTP/1.1 for clients that offer it; those that offer only others find out by its answer.
int choose_protocol(SSL* /*session*/, const unsigned char** chosen, unsigned char* chosen_bytes,
                    const unsigned char* offered, unsigned offered_bytes, void* /*unused*/) {
  constexpr std::string_view kOurs = "\x08http/1.1";
  unsigned char* found = nullptr;
  const auto* ours = reinterpret_cast<const unsigned char*>(kOurs.data());
  if (SSL_select_next_proto(&found, chosen_bytes, ours, kOurs.size(), offered, offered_bytes) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_NOACK;
  }
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

TlsContext::TlsContext() : context_(SSL_CTX_new(TLS_server_method())) {
  CHECK(context_ != nullptr, "OpenSSL gives no context");
  SSL_CTX_set_min_proto_version(context_, TLS1_2_VERSION);
  SSL_CTX_set_options(context_, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                    SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_IGNORE_UNEXPECTED_EOF);
  CHECK(SSL_CTX_set_cipher_list(context_, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1);
  SSL_CTX_set_session_cache_mode(context_, SSL_SESS_CACHE_OFF);
  // Idle connections keep no buffers, and what is written may move between two tries.
  SSL_CTX_set_mode(context_, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                 SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_alpn_select_cb(context_, choose_protocol, nullptr);
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

Result<std::unique_ptr<TlsContext>> TlsContext::load(const TlsFiles& files) {
  if (files.certificate.empty()) {
    return no_certificate(files);
  }
  std::unique_ptr<TlsContext> tls(new TlsContext());
  RETURN_IF_ERROR(tls->read_certificate(files));
  RETURN_IF_ERROR(tls->read_key(files));
  RETURN_IF_ERROR(tls->read_authorities(files));
  return tls;
}

Status TlsContext::read_certificate(const TlsFiles& files) {
  const std::string& path = files.certificate;
  RETURN_IF_ERROR(check_readable(kCertificateFlag, path));
  ERR_clear_error();
  if (SSL_CTX_use_certificate_chain_file(context_, path.c_str()) != 1) {
    ERR_clear_error();
    return bad_file(kCertificateFlag, path,
                    "holds no usable certificate; give a PEM file that begins with the server's "
                    "('-----BEGIN CERTIFICATE-----')");
  }
  const X509* certificate = SSL_CTX_get0_certificate(context_);
  const ASN1_TIME* from = X509_get0_notBefore(certificate);
  const ASN1_TIME* until = X509_get0_notAfter(certificate);
  if (X509_cmp_current_time(until) <= 0) {
    return bad_file(kCertificateFlag, path,
                    fmt::format("the certificate expired on {}; renew it", time_text(until)));
  }
  if (X509_cmp_current_time(from) > 0) {
    return bad_file(kCertificateFlag, path,
                    fmt::format("the certificate is not valid before {}; check this machine's "
                                "clock, or wait",
                                time_text(from)));
  }
  int days = 0;
  int seconds = 0;
  ASN1_TIME_diff(&days, &seconds, nullptr, until);
  valid_for_ = std::chrono::hours(int64_t{24} * days + seconds / 3600);
  return {};
}

Status TlsContext::read_key(const TlsFiles& files) {
  const bool own_file = !files.key.empty();
  const char* flag = own_file ? kKeyFlag : kCertificateFlag;
  const std::string& path = own_file ? files.key : files.certificate;
  RETURN_IF_ERROR(check_readable(flag, path));
  bool asked = false;
  SSL_CTX_set_default_passwd_cb(context_, no_passphrase);
  SSL_CTX_set_default_passwd_cb_userdata(context_, &asked);
  ERR_clear_error();
  const bool used = SSL_CTX_use_PrivateKey_file(context_, path.c_str(), SSL_FILETYPE_PEM) == 1;
  const bool mismatch =
      !used && ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH;
  ERR_clear_error();
  SSL_CTX_set_default_passwd_cb_userdata(context_, nullptr);
  if (asked) {
    return bad_file(flag, path,
                    "the key is under a passphrase; write it without one: openssl pkey -in KEY "
                    "-out NEW_KEY");
  }
  if (mismatch || (used && SSL_CTX_check_private_key(context_) != 1)) {
    ERR_clear_error();
    return bad_file(flag, path,
                    fmt::format("is not the key of the certificate in {}; give the two that were "
                                "made together",
                                files.certificate));
  }
  if (!used) {
    return bad_file(flag, path,
                    own_file ? "holds no private key in PEM form"
                             : "holds no private key; give it with --ssl-keyfile");
  }
  return {};
}

Status TlsContext::read_authorities(const TlsFiles& files) {
  if (files.client_certificates == ClientCertificates::kNotAsked) {
    return {};
  }
  const std::string& path = files.client_authorities;
  if (path.empty()) {
    return invalid_argument(
        "--ssl-cert-reqs asks for certificates of clients; say with --ssl-ca-certs who signs them",
        kAuthoritiesFlag);
  }
  RETURN_IF_ERROR(check_readable(kAuthoritiesFlag, path));
  ERR_clear_error();
  STACK_OF(X509_NAME)* names = SSL_load_client_CA_file(path.c_str());
  if (names == nullptr || SSL_CTX_load_verify_file(context_, path.c_str()) != 1) {
    sk_X509_NAME_pop_free(names, X509_NAME_free);
    ERR_clear_error();
    return bad_file(kAuthoritiesFlag, path, "holds no certificates in PEM form");
  }
  SSL_CTX_set_client_CA_list(context_, names);
  // The server gives clients session tickets, although it has no cache. OpenSSL refuses a client
  // that comes back with a ticket unless the context has a name.
  constexpr std::string_view kTicketsOf = "tandem";
  SSL_CTX_set_session_id_context(context_,
                                 reinterpret_cast<const unsigned char*>(kTicketsOf.data()),
                                 static_cast<unsigned>(kTicketsOf.size()));
  const bool required = files.client_certificates == ClientCertificates::kRequired;
  SSL_CTX_set_verify(context_, SSL_VERIFY_PEER | (required ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
                     nullptr);
  return {};
}

net::TlsSession TlsContext::new_session() const {
  net::TlsSession session(SSL_new(context_));
  if (session != nullptr) {
    SSL_set_accept_state(session.get());
  }
  return session;
}

}  // namespace tandem::api
