// The door between whoever brings requests (HTTP, batch files, tests) and whoever runs them (one
// engine, later a cluster). Every function may be called from any thread and returns at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "request/request.h"

namespace tandem {

// What the front end must know about a served model.
struct ServedModel {
  std::vector<std::string> names;  // the first is its own, the others are aliases
  std::string root;                // folder name or id shown in /v1/models
  int64_t created_unix_seconds = 0;
  int32_t max_model_len = 0;  // prompt + output tokens of one sequence, at most
  int32_t vocabulary = 0;     // ids are below this
  int32_t max_choices = 1;    // largest Request::n
};

struct FrontendLoad {
  int64_t running = 0;
  int64_t waiting = 0;
};

enum class ServingState : uint8_t { kLoading, kReady, kDraining, kFailed };

class Frontend {
 public:
  virtual ~Frontend() = default;
  [[nodiscard]] virtual const ServedModel& model() const = 0;
  [[nodiscard]] virtual ServingState state() const = 0;
  [[nodiscard]] virtual FrontendLoad load() const = 0;
  // Accepts the request into the bounded queue (every accepted one ends in exactly n kFinish
  // events), or says why not: kInvalidArgument (too long for this model: the numbers), kOverloaded
  // (queue full: retry_after in `message`), kUnavailable.
  virtual Result<RequestId> submit(Request request) = 0;
  // The client is gone: all choices end with kCancelled. Unknown or ended requests are ignored.
  virtual void cancel(RequestId request) = 0;
  // The front end found a stop string in this choice: it ends with kStop; tokens computed meanwhile
  // are dropped.
  virtual void stop(RequestId request, int32_t choice) = 0;
};

}  // namespace tandem
