#include "hub/checksum.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <system_error>
#include <vector>

#include "base/check.h"

namespace tandem::hub {
namespace {

constexpr size_t kGitDigits = 40;
constexpr size_t kSha256Digits = 64;

}  // namespace

bool is_checksum(std::string_view text) {
  return (text.size() == kGitDigits || text.size() == kSha256Digits) &&
         std::ranges::all_of(
             text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string checksum_of_etag(std::string_view etag) {
  if (etag.starts_with("W/")) {
    etag.remove_prefix(2);
  }
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') {
    etag = etag.substr(1, etag.size() - 2);
  }
  return is_checksum(etag) ? std::string(etag) : std::string();
}

Checksum::Checksum(std::string_view expected, int64_t file_bytes)
    : is_git_(expected.size() == kGitDigits), file_bytes_(file_bytes), context_(EVP_MD_CTX_new()) {
  CHECK(is_checksum(expected), "'{}'", expected);
  CHECK(context_ != nullptr, "OpenSSL gives no context");
  restart();
}

Checksum::~Checksum() { EVP_MD_CTX_free(context_); }

void Checksum::restart() {
  CHECK(EVP_DigestInit_ex(context_, is_git_ ? EVP_sha1() : EVP_sha256(), nullptr) == 1,
        "OpenSSL has no {}", is_git_ ? "SHA-1" : "SHA-256");
  if (is_git_) {
    const std::string head = fmt::format("blob {}", file_bytes_);
    add({head.c_str(), head.size() + 1});
  }
}

void Checksum::add(std::string_view bytes) {
  CHECK(EVP_DigestUpdate(context_, bytes.data(), bytes.size()) == 1, "a checksum failed");
}

std::string Checksum::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned bytes = 0;
  CHECK(EVP_DigestFinal_ex(context_, digest.data(), &bytes) == 1, "a checksum failed");
  std::string text;
  for (unsigned i = 0; i < bytes; ++i) {
    text += fmt::format("{:02x}", digest.at(i));
  }
  return text;
}

bool has_checksum(const std::filesystem::path& path, std::string_view checksum,
                  const std::function<bool()>& stop) {
  std::error_code failure;
  const auto bytes = std::filesystem::file_size(path, failure);
  std::ifstream file(path, std::ios::binary);
  if (failure || !file) {
    return false;
  }
  Checksum found(checksum, static_cast<int64_t>(bytes));
  std::vector<char> buffer(size_t{1} << 20);
  while (file) {
    if (stop()) {
      return false;
    }
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    found.add({buffer.data(), static_cast<size_t>(file.gcount())});
  }
  return file.eof() && found.finish() == checksum;
}

}  // namespace tandem::hub
