// What the hub's refusals and failures mean for the person who asked, and when to ask again.
// Threads: plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "hub/http.h"
#include "hub/model_name.h"
#include "hub/options.h"

namespace tandem::hub {

// Why a request was not answered.
struct Refusal {
  Error error;
  bool retry = false;                // it may pass
  std::optional<Nanos> retry_after;  // as the hub asks
  std::string cause;                 // in a few words, for notes; empty: there are none
};

// Of an answer whose status is neither success nor a redirection. `file` is empty for the list of
// files.
Refusal explain_status(const HttpHead& head, const ModelName& name, std::string_view file,
                       const HubOptions& options);

// Likewise, but of another server than the hub, to which the hub redirects for the file's bytes. A
// new request brings a new address, so that most refusals may pass.
Refusal explain_status_elsewhere(const HttpHead& head, const std::string& url);

// Of a transfer that failed.
Refusal explain_failure(const HttpOutcome& outcome, const HubOptions& options);

// How often something is tried, and the pauses between. One thread.
class Attempts {
 public:
  explicit Attempts(const HubOptions& options) : options_(options), pause_(options.first_pause) {}

  // After a failure: how long to wait before the next attempt. An attempt that brought bytes starts
  // the count anew. Nullopt: no more.
  std::optional<Nanos> next_pause(const Refusal& refusal, bool brought_bytes);

 private:
  const HubOptions& options_;
  Nanos pause_;
  int32_t failed_ = 0;
};

// Seconds of a Retry-After header; nullopt: it holds none.
[[nodiscard]] std::optional<Nanos> parse_retry_after(std::string_view text);

// Of a text from outside, in messages: see base/printable.h.
inline constexpr size_t kMaxShownBytes = 200;

}  // namespace tandem::hub
