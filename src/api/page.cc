#include "api/page.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

#include <array>

namespace tandem::api {
namespace {

// "'sha256-...'" as Content-Security-Policy writes it.
std::string hash_source(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  constexpr size_t kBase64Bytes = (SHA256_DIGEST_LENGTH + 2) / 3 * 4;
  std::array<unsigned char, kBase64Bytes + 1> base64{};
  EVP_EncodeBlock(base64.data(), digest.data(), static_cast<int>(digest.size()));
  return fmt::format("'sha256-{}'",
                     std::string_view(reinterpret_cast<const char*>(base64.data()), kBase64Bytes));
}

// " 'sha256-...'" for each <tag>...</tag> of `html`.
std::string hash_sources(std::string_view html, std::string_view tag) {
  const std::string open = fmt::format("<{}>", tag);
  const std::string close = fmt::format("</{}>", tag);
  std::string sources;
  size_t at = 0;
  while ((at = html.find(open, at)) != std::string_view::npos) {
    at += open.size();
    sources += ' ' + hash_source(html.substr(at, html.find(close, at) - at));
  }
  return sources.empty() ? " 'none'" : sources;
}

}  // namespace

std::string content_security_policy(std::string_view html) {
  return fmt::format(
      "default-src 'none'; script-src{}; style-src{}; connect-src 'self'; img-src data:; "
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
      "require-trusted-types-for 'script'; trusted-types 'none'",
      hash_sources(html, "script"), hash_sources(html, "style"));
}

HttpResponse page_response() {
  static const std::string policy = content_security_policy(kPageHtml);
  return {.content_type = "text/html; charset=utf-8",
          .headers = {{"Content-Security-Policy", policy},
                      {"Cache-Control", "no-cache"},
                      {"Referrer-Policy", "no-referrer"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"X-Frame-Options", "DENY"}},
          .body = std::string(kPageHtml)};
}

}  // namespace tandem::api
