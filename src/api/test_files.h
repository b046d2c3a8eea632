// For tests of api/: a folder that goes with its object, and certificates made on the spot.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"

namespace tandem::api {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "tandem-api-XXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr, "no temporary folder");
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return file(name);
  }

 private:
  std::filesystem::path path_;
};

using PrivateKey = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

inline PrivateKey make_key() { return {EVP_EC_gen("P-256"), EVP_PKEY_free}; }

inline void write_key(const std::string& path, EVP_PKEY* key, const char* passphrase = nullptr) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  CHECK(file != nullptr, "{}", path);
  const int length =
      passphrase == nullptr ? 0 : static_cast<int>(std::string_view(passphrase).size());
  CHECK(PEM_write_PrivateKey(file, key, passphrase == nullptr ? nullptr : EVP_aes_128_cbc(),
                             reinterpret_cast<const unsigned char*>(passphrase), length, nullptr,
                             nullptr) == 1);
  std::fclose(file);
}

// Self-signed, for localhost; valid from and until, in seconds from now.
inline void write_certificate(const std::string& path, EVP_PKEY* key, long from = -3600,
                              long until = 30L * 86400) {
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), from);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), until);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME* name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  CHECK(X509_sign(certificate.get(), key, EVP_sha256()) > 0);
  std::FILE* file = std::fopen(path.c_str(), "wb");
  CHECK(file != nullptr && PEM_write_X509(file, certificate.get()) == 1, "{}", path);
  std::fclose(file);
}

}  // namespace tandem::api
