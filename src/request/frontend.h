// The interface between those that bring requests (HTTP, batch files, tests) and what runs them
// (one engine, later a cluster). Every function may be called from any thread. All return at once
// but submit(): if the engine has an admission, it waits until the engine has finished what it is
// doing, which is one Engine::advance() at most (some hundred microseconds).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "request/request.h"
#include "request/service.h"

namespace tandem {

// The facts about a served model that the front end needs.
struct ServedModel {
  std::vector<std::string> names;  // the first is its own, the others are aliases
  std::string root;                // folder name or id shown in /v1/models
  int64_t created_unix_seconds = 0;
  int32_t max_model_len = 0;  // prompt + output tokens of one sequence, at most
  int32_t vocabulary = 0;     // ids are below this
  int32_t max_choices = 1;    // largest Request::n
  ServiceFields reads;        // of a request's claim, by the policy
};

struct FrontendLoad {
  int64_t running = 0;
  int64_t waiting = 0;
};

enum class ServingState : uint8_t { kLoading, kReady, kDraining, kFailed };

// Why a request was not accepted.
struct Refusal {
  Error error;
  std::string reason;                // one word for headers and metrics; empty: the code says it
  std::optional<Nanos> ttft;         // until its first token, by forecast
  std::optional<Nanos> ttft_target;  // that it was held against
  std::optional<Nanos> retry_after;  // when it might be accepted, by forecast
  enum class Retry : uint8_t { kWorthIt, kUseless } retry = Retry::kWorthIt;
};

// The result of submitting a request: the id under which it was accepted, or why it was not.
class [[nodiscard]] Submission {
 public:
  Submission(RequestId id) : id_(id) {}                                    // NOLINT: as Result does
  Submission(Error error) : refusal_{std::move(error), {}, {}, {}, {}} {}  // NOLINT
  Submission(Refusal refusal) : refusal_(std::move(refusal)) {}            // NOLINT

  [[nodiscard]] bool ok() const { return id_.has_value(); }
  // Needs ok().
  [[nodiscard]] RequestId value() const {
    CHECK(ok(), "value() of a refusal: {}", refusal_.error.message);
    return *id_;
  }
  // Needs !ok().
  [[nodiscard]] const Refusal& refusal() const { return refusal_; }
  [[nodiscard]] const Error& error() const { return refusal_.error; }

 private:
  std::optional<RequestId> id_;
  Refusal refusal_;
};

class Frontend {
 public:
  virtual ~Frontend() = default;
  [[nodiscard]] virtual const ServedModel& model() const = 0;
  [[nodiscard]] virtual ServingState state() const = 0;
  // With kFailed: why, and the cure, as far as it is known; else empty.
  [[nodiscard]] virtual std::string failure() const { return {}; }
  [[nodiscard]] virtual FrontendLoad load() const = 0;
  // Accepts the request into the bounded queue (every accepted one ends in exactly n kFinish
  // events), or says why not: kInvalidArgument (too long for this model: the numbers), kOverloaded
  // (the queue is full, or admission refused it: the forecast), kUnavailable. May wait for one
  // advance of the engine, see above.
  virtual Submission submit(Request request) = 0;
  // The client is gone: all choices end with kCancelled. Unknown or ended requests are ignored.
  virtual void cancel(RequestId request) = 0;
  // The front end found a stop string in this choice: it ends with kStop; tokens computed meanwhile
  // are dropped.
  virtual void stop(RequestId request, int32_t choice) = 0;
};

}  // namespace tandem
