#include "hub/refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/printable.h"
#include "base/units.h"

namespace tandem::hub {
namespace {

constexpr int kUnauthorized = 401;
constexpr int kForbidden = 403;
constexpr int kNotFound = 404;
constexpr int kRequestTimeout = 408;
constexpr int kTooManyRequests = 429;
constexpr int kServerError = 500;

// What the hub itself says, in parentheses; empty: nothing.
std::string said_by_hub(const HttpHead& head) {
  const std::string message = printable(head.header("x-error-message"), kMaxShownBytes);
  return message.empty() ? std::string() : fmt::format(" (the hub says: {})", message);
}

Error gated(const HttpHead& head, const ModelName& name, const HubOptions& options) {
  return {ErrorCode::kForbidden,
          fmt::format("'{}' is gated: accept its licence at {}/{}, and set HF_TOKEN to a token of "
                      "the account that accepted it{}",
                      name.repository, options.endpoint, name.repository, said_by_hub(head)),
          "model"};
}

Error not_shown(const HttpHead& head, const ModelName& name, const HubOptions& options) {
  if (options.token.empty()) {
    return {ErrorCode::kUnauthenticated,
            fmt::format("the hub has no public model '{}': check the name. For a private or gated "
                        "model set HF_TOKEN{}",
                        name.repository, said_by_hub(head)),
            "model"};
  }
  return {
      ErrorCode::kUnauthenticated,
      fmt::format("the hub does not let this token read '{}': check the name, and that HF_TOKEN "
                  "is valid and may read it{}",
                  name.repository, said_by_hub(head)),
      "model"};
}

Error forbidden(const HttpHead& head, const ModelName& name, const HubOptions& options) {
  return {ErrorCode::kForbidden,
          fmt::format("the hub at {} forbids to read '{}' (status {}); {}{}", options.endpoint,
                      name.repository, head.status,
                      options.token.empty() ? "for a private or gated model set HF_TOKEN"
                                            : "check that HF_TOKEN may read it",
                      said_by_hub(head)),
          "model"};
}

Error not_found(const HttpHead& head, const ModelName& name, std::string_view file) {
  const std::string_view code = head.header("x-error-code");
  if (code == "RevisionNotFound") {
    return {ErrorCode::kNotFound,
            fmt::format("'{}' has no revision '{}'{}", name.repository, name.revision,
                        said_by_hub(head)),
            "model"};
  }
  if (!file.empty()) {
    return {ErrorCode::kNotFound,
            fmt::format("the hub lists '{}' of '{}' and does not have it{}; run the same command "
                        "again",
                        file, name.repository, said_by_hub(head)),
            "model"};
  }
  return {ErrorCode::kNotFound,
          fmt::format("the hub has no model '{}'; check the name{}", name.repository,
                      said_by_hub(head)),
          "model"};
}

}  // namespace

std::optional<Nanos> parse_retry_after(std::string_view text) {
  int64_t seconds = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  constexpr int64_t kMaxSeconds = 1'000'000;
  if (text.empty() || code != std::errc() || end != text.data() + text.size() || seconds < 0) {
    return std::nullopt;
  }
  return std::chrono::seconds(std::min(seconds, kMaxSeconds));
}

Refusal explain_status(const HttpHead& head, const ModelName& name, std::string_view file,
                       const HubOptions& options) {
  Refusal refusal;
  const std::string_view code = head.header("x-error-code");
  if (code == "GatedRepo") {
    refusal.error = gated(head, name, options);
  } else if (head.status == kForbidden) {
    refusal.error = forbidden(head, name, options);
  } else if (head.status == kUnauthorized) {
    refusal.error = not_shown(head, name, options);
  } else if (head.status == kNotFound) {
    refusal.error = not_found(head, name, file);
  } else if (head.status == kTooManyRequests || head.status == kRequestTimeout ||
             head.status >= kServerError) {
    refusal.retry = true;
    refusal.cause = fmt::format("status {}", head.status);
    refusal.retry_after = parse_retry_after(head.header("retry-after"));
    refusal.error = {ErrorCode::kUnavailable,
                     fmt::format("the hub at {} answers with status {}{}; try again later",
                                 options.endpoint, head.status, said_by_hub(head)),
                     {}};
  } else {
    refusal.error = {ErrorCode::kIo,
                     fmt::format("the hub at {} answers with status {}{}; is HF_ENDPOINT the "
                                 "address of a hub?",
                                 options.endpoint, head.status, said_by_hub(head)),
                     {}};
  }
  return refusal;
}

Refusal explain_status_elsewhere(const HttpHead& head, const std::string& url) {
  const bool passes = head.status == kUnauthorized || head.status == kForbidden ||
                      head.status == kNotFound || head.status == kRequestTimeout ||
                      head.status == kTooManyRequests || head.status >= kServerError;
  const std::string cause =
      fmt::format("status {} of {}", head.status, printable(origin_of(url), kMaxShownBytes));
  return {.error = {ErrorCode::kUnavailable,
                    fmt::format("the hub redirects to a server that does not send the file: {}; "
                                "try again later, and check the network and the proxy",
                                cause),
                    {}},
          .retry = passes,
          .retry_after = parse_retry_after(head.header("retry-after")),
          .cause = cause};
}

Refusal explain_failure(const HttpOutcome& outcome, const HubOptions& options) {
  if (outcome.failure == HttpFailure::kUntrusted) {
    return {.error = {ErrorCode::kUnavailable,
                      fmt::format("the certificate of the hub at {} is not trusted: {}; if a proxy "
                                  "or a mirror signs with an authority of its own, name its PEM "
                                  "file with SSL_CERT_FILE",
                                  options.endpoint, printable(outcome.message, kMaxShownBytes)),
                      {}},
            .retry = false,
            .retry_after = {},
            .cause = printable(outcome.message, kMaxShownBytes)};
  }
  return {.error = {ErrorCode::kUnavailable,
                    fmt::format("the hub at {} cannot be asked: {}; check the network, the proxy "
                                "and HF_ENDPOINT, or use --offline",
                                options.endpoint, printable(outcome.message, kMaxShownBytes)),
                    {}},
          .retry = outcome.retry,
          .retry_after = {},
          .cause = printable(outcome.message, kMaxShownBytes)};
}

std::optional<Nanos> Attempts::next_pause(const Refusal& refusal, bool brought_bytes) {
  if (brought_bytes) {
    failed_ = 0;
    pause_ = options_.first_pause;
  }
  ++failed_;
  if (!refusal.retry || failed_ >= options_.attempts ||
      refusal.retry_after.value_or(Nanos{0}) > options_.max_retry_after) {
    return std::nullopt;
  }
  const Nanos pause = std::max(pause_, refusal.retry_after.value_or(Nanos{0}));
  pause_ = std::min(2 * pause_, options_.max_pause);
  return pause;
}

}  // namespace tandem::hub
