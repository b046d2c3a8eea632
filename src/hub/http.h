// HTTP requests by libcurl, one at a time over connections that are kept. Redirections are not
// followed: the caller decides where a token may go. The answer's body is given as it comes.
// Proxies are taken from the environment, as libcurl does (https_proxy, no_proxy); requests to this
// machine itself use none. libcurl is loaded when it is first needed, so call require_libcurl
// before all else here. Threads: a client belongs to one thread. The process should ignore SIGPIPE.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace tandem::hub {

// Loads libcurl. Error: kUnavailable, if this system has none that is new enough.
Status require_libcurl();

inline constexpr int kHttpOk = 200;
inline constexpr int kHttpPartial = 206;

struct HttpLimits {
  Nanos connect = std::chrono::seconds(10);  // with the handshake of TLS
  // A transfer fails that brings fewer bytes per second than `min_rate`, on average over `silence`.
  Nanos silence = std::chrono::seconds(30);
  int32_t min_rate = 1;
  std::string ca_file;  // a PEM file; empty: that of the system
  bool check_certificate = true;
};

struct HttpRequest {
  std::string method = "GET";  // or HEAD, POST
  std::string url;
  std::vector<std::string> headers;  // "Name: value"
  std::string body;                  // of POST
  Nanos limit{0};                    // of the whole transfer; 0: none
};

// The status line and headers of an answer.
struct HttpHead {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case

  // The first of that name, which is given in lower case; empty: there is none.
  [[nodiscard]] std::string_view header(std::string_view name) const;
};

class HttpListener {
 public:
  virtual ~HttpListener() = default;
  // False: the rest is not wanted; the transfer ends as kRefused.
  virtual bool on_head(const HttpHead& head) = 0;
  virtual bool on_body(std::string_view bytes) = 0;
};

enum class HttpFailure : uint8_t {
  kNone,       // a whole answer, of whatever status
  kConnect,    // no address or no connection
  kUntrusted,  // the server's certificate was not accepted
  kTimeout,
  kBroken,   // ended in the middle, or is not HTTP
  kRefused,  // by the listener
  kStopped,
};

struct HttpOutcome {
  HttpFailure failure = HttpFailure::kNone;
  std::string message;  // of libcurl; empty without a failure
  bool retry = false;   // the failure may pass
};

class HttpClient {
 public:
  explicit HttpClient(const HttpLimits& limits);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // `stop` is asked some times a second; true ends the transfer.
  HttpOutcome perform(const HttpRequest& request, HttpListener& listener,
                      const std::function<bool()>& stop);

 private:
  struct Transfer;
  void set_options(const HttpRequest& request, Transfer& transfer);

  HttpLimits limits_;
  void* easy_;   // CURL
  void* multi_;  // CURLM
};

// "http://host:port", with the port always, in lower case; empty: `url` is not of http or https, or
// has a user.
[[nodiscard]] std::string origin_of(const std::string& url);

// True: the host of `url` is this machine, by its name "localhost" or a loopback address.
[[nodiscard]] bool is_loopback(const std::string& url);

// Where a redirection from `base` to `location` leads; an error if that is not http or https, or if
// it leaves https.
Result<std::string> redirected(const std::string& base, const std::string& location);

// Percent-encoded: one part, with its slashes; and a path, whose slashes stay.
[[nodiscard]] std::string url_part(std::string_view text);
[[nodiscard]] std::string url_path(std::string_view path);

}  // namespace tandem::hub
