#include "hub/http.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/check.h"
#include "hub/libcurl.h"

namespace tandem::hub {
namespace {

constexpr size_t kMaxHeaders = 200;
constexpr int kPollMillis = 100;
constexpr const char* kUserAgent = "tandem";

struct UrlDeleter {
  void operator()(CURLU* url) const { libcurl().url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, UrlDeleter>;

std::string url_text(CURLU* url, CURLUPart part, unsigned flags) {
  char* text = nullptr;
  if (libcurl().url_get(url, part, &text, flags) != CURLUE_OK || text == nullptr) {
    return {};
  }
  std::string copy(text);
  libcurl().free(text);
  return copy;
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == text.npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

HttpFailure failure_of(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return HttpFailure::kNone;
    case CURLE_OPERATION_TIMEDOUT:
      return HttpFailure::kTimeout;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return HttpFailure::kConnect;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return HttpFailure::kUntrusted;
    default:
      return HttpFailure::kBroken;
  }
}

bool may_pass(CURLcode code) {
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return false;
    default:
      return true;
  }
}

// Where systems keep the certificates of authorities: a program that was built on one of them is
// run on others.
std::string system_ca_file() {
  for (const char* path : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    if (std::FILE* file = std::fopen(path, "rb"); file != nullptr) {
      std::fclose(file);
      return path;
    }
  }
  return {};
}

}  // namespace

struct HttpClient::Transfer {
  HttpListener* listener = nullptr;
  HttpHead head;
  bool refused = false;
  curl_slist* headers = nullptr;
  std::array<char, CURL_ERROR_SIZE> message{};

  Transfer() = default;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  ~Transfer() { libcurl().slist_free_all(headers); }

  // One line of a head; also of those of 1xx, which go before the answer's.
  static size_t on_header(char* data, size_t size, size_t count, void* self) {
    return static_cast<Transfer*>(self)->header_line({data, size * count}) ? size * count : 0;
  }
  static size_t on_body(char* data, size_t size, size_t count, void* self) {
    auto* transfer = static_cast<Transfer*>(self);
    transfer->refused = transfer->refused || !transfer->listener->on_body({data, size * count});
    return transfer->refused ? 0 : size * count;
  }

  bool header_line(std::string_view line) {
    if (line.starts_with("HTTP/")) {
      head = {};
      const size_t blank = line.find(' ');
      if (blank != line.npos) {
        std::from_chars(line.data() + blank + 1, line.data() + line.size(), head.status);
      }
      return true;
    }
    line = trimmed(line);
    if (line.empty()) {
      constexpr int kFinal = 200;
      refused = refused || (head.status >= kFinal && !listener->on_head(head));
      return !refused;
    }
    const size_t colon = line.find(':');
    if (colon != line.npos && head.headers.size() < kMaxHeaders) {
      head.headers.emplace_back(lower(std::string(trimmed(line.substr(0, colon)))),
                                trimmed(line.substr(colon + 1)));
    }
    return true;
  }
};

std::string_view HttpHead::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) {
      return value;
    }
  }
  return {};
}

HttpClient::HttpClient(const HttpLimits& limits) : limits_(limits) {
  const Libcurl& curl = libcurl();
  easy_ = curl.easy_init();
  multi_ = curl.multi_init();
  CHECK(easy_ != nullptr && multi_ != nullptr, "libcurl gives no handle");
  if (limits_.ca_file.empty()) {
    limits_.ca_file = system_ca_file();
  }
}

HttpClient::~HttpClient() {
  libcurl().easy_cleanup(easy_);
  libcurl().multi_cleanup(multi_);
}

void HttpClient::set_options(const HttpRequest& request, Transfer& transfer) {
  const Libcurl& curl = libcurl();
  CURL* easy = easy_;
  curl.easy_reset(easy);  // connections stay
  const auto millis = [](Nanos time) {
    return static_cast<long>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
  };
  for (const std::string& header : request.headers) {
    transfer.headers = curl.slist_append(transfer.headers, header.c_str());
  }
  curl.easy_setopt(easy, CURLOPT_URL, request.url.c_str());
  curl.easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl.easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl.easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl.easy_setopt(easy, CURLOPT_USERAGENT, kUserAgent);
  curl.easy_setopt(easy, CURLOPT_HTTPHEADER, transfer.headers);
  curl.easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl.easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, millis(limits_.connect));
  curl.easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, long{limits_.min_rate});
  curl.easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, std::max(1L, millis(limits_.silence) / 1000));
  curl.easy_setopt(easy, CURLOPT_TIMEOUT_MS, millis(request.limit));
#if LIBCURL_VERSION_NUM >= 0x075700
  // A resolver that hangs does not hold up the end of the program.
  curl.easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
#endif
  curl.easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer.message.data());
  curl.easy_setopt(easy, CURLOPT_HEADERFUNCTION, &Transfer::on_header);
  curl.easy_setopt(easy, CURLOPT_HEADERDATA, &transfer);
  curl.easy_setopt(easy, CURLOPT_WRITEFUNCTION, &Transfer::on_body);
  curl.easy_setopt(easy, CURLOPT_WRITEDATA, &transfer);
  if (!limits_.ca_file.empty()) {
    curl.easy_setopt(easy, CURLOPT_CAINFO, limits_.ca_file.c_str());
  }
  if (is_loopback(request.url)) {
    curl.easy_setopt(easy, CURLOPT_PROXY, "");  // not even one of the environment
  }
  if (!limits_.check_certificate) {
    curl.easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
    curl.easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
  }
  if (request.method == "HEAD") {
    curl.easy_setopt(easy, CURLOPT_NOBODY, 1L);
  } else if (request.method == "POST") {
    curl.easy_setopt(easy, CURLOPT_POST, 1L);
    curl.easy_setopt(easy, CURLOPT_POSTFIELDS, request.body.data());
    curl.easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request.body.size()));
  }
}

HttpOutcome HttpClient::perform(const HttpRequest& request, HttpListener& listener,
                                const std::function<bool()>& stop) {
  const Libcurl& curl = libcurl();
  Transfer transfer;
  transfer.listener = &listener;
  set_options(request, transfer);
  CHECK(curl.multi_add_handle(multi_, easy_) == CURLM_OK, "libcurl takes no transfer");
  HttpOutcome outcome;
  int running = 1;
  while (running > 0 && outcome.failure == HttpFailure::kNone) {
    const CURLMcode driven = curl.multi_perform(multi_, &running);
    if (driven != CURLM_OK) {
      outcome = {HttpFailure::kBroken, curl.multi_strerror(driven), false};
    } else if (running > 0 && stop()) {
      outcome = {HttpFailure::kStopped, "stopped", false};
    } else if (running > 0) {
      curl.multi_poll(multi_, nullptr, 0, kPollMillis, nullptr);
    }
  }
  int left = 0;
  while (const CURLMsg* message = curl.multi_info_read(multi_, &left)) {
    const CURLcode code = message->data.result;
    if (message->msg != CURLMSG_DONE || code == CURLE_OK || outcome.failure != HttpFailure::kNone) {
      continue;
    }
    if (transfer.refused) {
      outcome = {HttpFailure::kRefused, "refused", false};
      continue;
    }
    const std::string_view said(transfer.message.data());
    outcome = {failure_of(code), std::string(said.empty() ? curl.easy_strerror(code) : said),
               may_pass(code)};
  }
  curl.multi_remove_handle(multi_, easy_);
  // What the handle points to ends with this function.
  curl.easy_reset(easy_);
  return outcome;
}

std::string origin_of(const std::string& url) {
  const Url parsed(libcurl().url());
  if (parsed == nullptr || libcurl().url_set(parsed.get(), CURLUPART_URL, url.c_str(),
                                             CURLU_DISALLOW_USER) != CURLUE_OK) {
    return {};
  }
  const std::string scheme = lower(url_text(parsed.get(), CURLUPART_SCHEME, 0));
  if (scheme != "http" && scheme != "https") {
    return {};
  }
  return fmt::format("{}://{}:{}", scheme, lower(url_text(parsed.get(), CURLUPART_HOST, 0)),
                     url_text(parsed.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT));
}

bool is_loopback(const std::string& url) {
  const Url parsed(libcurl().url());
  if (parsed == nullptr ||
      libcurl().url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) {
    return false;
  }
  std::string host = lower(url_text(parsed.get(), CURLUPART_HOST, 0));
  in_addr address{};
  if (::inet_pton(AF_INET, host.c_str(), &address) == 1) {
    constexpr uint32_t kLoopback = 127;
    return ntohl(address.s_addr) >> 24U == kLoopback;
  }
  return host == "localhost" || host.ends_with(".localhost") || host == "[::1]";
}

Result<std::string> redirected(const std::string& base, const std::string& location) {
  const Url parsed(libcurl().url());
  const bool readable =
      parsed != nullptr && !location.empty() &&
      libcurl().url_set(parsed.get(), CURLUPART_URL, base.c_str(), 0) == CURLUE_OK &&
      libcurl().url_set(parsed.get(), CURLUPART_URL, location.c_str(), CURLU_DISALLOW_USER) ==
          CURLUE_OK;
  const std::string target = readable ? url_text(parsed.get(), CURLUPART_URL, 0) : std::string();
  const std::string origin = origin_of(target);
  if (origin.empty()) {
    return Error{
        ErrorCode::kIo, "the hub redirects to an address that is not of http or https", {}};
  }
  if (origin_of(base).starts_with("https://") && !origin.starts_with("https://")) {
    return Error{ErrorCode::kIo,
                 "the hub redirects from https to an address without encryption; refused",
                 {}};
  }
  return target;
}

std::string url_part(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~';
    if (plain) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

std::string url_path(std::string_view path) {
  std::string encoded;
  while (true) {
    const size_t slash = path.find('/');
    encoded += url_part(path.substr(0, slash));
    if (slash == path.npos) {
      return encoded;
    }
    encoded += '/';
    path.remove_prefix(slash + 1);
  }
}

}  // namespace tandem::hub
