// What a client asked for, in tokens; and what it gets back, as events. Plain data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "request/sampling_params.h"
#include "request/slo.h"

namespace tandem {

class TokenSink;

struct Request {
  std::vector<TokenId> prompt;  // at least one token
  SamplingParams sampling;
  int32_t n = 1;  // choices (sequences), 1 .. Frontend limits
  ServiceClass service_class = ServiceClass::kLatencySensitive;
  int32_t level = 0;  // inside the class, lower goes first
  Slo slo;
  bool explain = false;     // a ServiceReport comes with each kFinish
  std::string tenant;       // salts the prefix cache: tenants never share blocks
  std::string external_id;  // the client's X-Request-Id, for logs
  std::shared_ptr<TokenSink> sink;
  uint64_t sink_tag = 0;  // handed back in every event: the sink's own name for the request
  // Requests of the same body that are submitted after this one: the queue has room for them, too,
  // when it takes this one. It keeps no room for them.
  int32_t followers = 0;
};

enum class FinishReason : uint8_t {
  kStop,       // stop id or stop string
  kLength,     // max_tokens or the context is full
  kCancelled,  // the client went away or asked
  kError,      // this request failed (see TokenEvent::error)
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0F;
};

struct LogprobInfo {
  float logprob = 0.0F;           // of the chosen token
  int32_t rank = 0;               // 1 = most likely
  std::vector<TokenLogprob> top;  // most likely first
};

// How one choice was served, by the engine's clock: times count from its arrival there.
struct ServiceReport {
  ServiceClass service_class = ServiceClass::kLatencySensitive;
  int32_t level = 0;
  std::optional<Nanos> ttft_target;
  std::optional<Nanos> tpot_target;
  bool slo_met = true;         // of the targets above; true where there is none
  std::optional<Nanos> queue;  // arrival to first admission; absent: it never ran
  std::optional<Nanos> ttft;   // absent: no token came
  // What admission said that `ttft` would be with no best effort beside it; absent: it was not
  // asked.
  std::optional<Nanos> forecast_ttft;
  Nanos mean_gap{0};  // between consecutive tokens; 0 below two tokens
  Nanos most_gap{0};
  int32_t device_tokens = 0;  // output tokens whose attention ran on the accelerator
  int32_t host_tokens = 0;    // and on the host
  int64_t hops = 0;           // of the latter
  Nanos parked{0};            // that its KV was on the host
  int32_t preemptions = 0;    // times that its KV was dropped and computed anew
};

// How a choice ended.
struct FinishInfo {
  FinishReason reason = FinishReason::kStop;
  int32_t stop_token = -1;  // by a stop id: which
  int32_t prompt_tokens = 0;
  int32_t output_tokens = 0;              // kToken events sent for this choice
  int32_t cached_tokens = 0;              // prompt tokens taken from the prefix cache
  std::string error;                      // with kError: what went wrong
  std::unique_ptr<ServiceReport> report;  // when asked
};

// One thing that happened to one choice of a request. What few have is kept elsewhere: a step makes
// one of these for every running sequence.
struct TokenEvent {
  enum class Kind : uint8_t {
    kPrompt,  // before the first token of choice 0, when prompt_logprobs are asked; holds for all
    kToken,
    kFinish
  };
  Kind kind = Kind::kToken;
  int32_t choice = 0;
  TokenId token = 0;  // kToken
  RequestId request{};
  uint64_t tag = 0;                                           // Request::sink_tag
  std::unique_ptr<LogprobInfo> logprobs;                      // kToken, when asked
  std::unique_ptr<std::vector<LogprobInfo>> prompt_logprobs;  // kPrompt: of tokens 1, 2, ..
  std::unique_ptr<FinishInfo> finish;                         // kFinish; exactly one per choice
};

// Receives the events of a step in one call, on the engine thread: take them, wake your own thread,
// return.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void deliver(std::vector<TokenEvent> events) = 0;
};

}  // namespace tandem
