#include "loadgen/url.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "loadgen/recorded.h"

namespace tandem::loadgen {

std::string Url::authority() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

std::string Url::text() const {
  return fmt::format("{}://{}{}", scheme == Scheme::kHttps ? "https" : "http", authority(), path);
}

Result<Url> parse_url(std::string_view text) {
  const auto wrong = [text](std::string_view why) {
    return invalid_argument(
        fmt::format("'{}' is not the address of a server: {}; write http://127.0.0.1:8000",
                    without_user(text), why),
        "base-url");
  };
  std::string_view rest = text;
  Url url;
  if (rest.starts_with("https://")) {
    url.scheme = Scheme::kHttps;
    url.port = 443;
  } else if (!rest.starts_with("http://")) {
    return wrong("it does not begin with http:// or https://");
  }
  rest.remove_prefix(rest.find("//") + 2);
  if (std::ranges::any_of(rest, [](char c) { return c <= ' ' || c > '~'; })) {
    return wrong("it has a character that no address has");
  }
  const size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  if (slash != rest.npos) {
    url.path = rest.substr(slash);
    while (url.path.ends_with('/')) {
      url.path.pop_back();
    }
  }
  if (authority.find('@') != authority.npos) {
    return wrong(
        "it has a user; give credentials with --api-key or --header \"Authorization: ...\"");
  }
  if (authority.starts_with('[')) {
    const size_t close = authority.find(']');
    if (close == authority.npos) {
      return wrong("a bracket is not closed");
    }
    url.host = authority.substr(1, close - 1);
    authority.remove_prefix(close + 1);
  } else {
    url.host = authority.substr(0, authority.find(':'));
    authority.remove_prefix(url.host.size());
  }
  if (url.host.empty()) {
    return wrong("it has no host");
  }
  if (authority.starts_with(':')) {
    authority.remove_prefix(1);
    const auto [end, error] =
        std::from_chars(authority.data(), authority.data() + authority.size(), url.port);
    if (error != std::errc{} || end != authority.data() + authority.size() || url.port == 0) {
      return wrong("its port is not a number from 1 to 65535");
    }
  } else if (!authority.empty()) {
    return wrong("there is text between host and port");
  }
  return url;
}

}  // namespace tandem::loadgen
