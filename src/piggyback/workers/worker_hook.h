// What a host attention worker asks before each part of its work: the door for tests and drills
// that let workers hang, be slow, throw or answer twice, and for nothing in normal operation.
#pragma once

#include <cstdint>

#include "piggyback/core/hop_types.h"

namespace tandem::piggyback {

enum class WorkerPoint {
  kAppend,  // before the task's K and V are appended
  kAttend,  // before a piece of its attention
  kKernel,  // inside: the task can no more be taken back, and who hangs here may still write
  kAnswer,  // its result is written
};

enum class WorkerAct {
  kGoOn,
  kThrow,           // not at kKernel: kernels throw nothing
  kAnswerTwice,     // at kAnswer
  kAnswerOutdated,  // at kAnswer: an answer from before is given again beside this one
};

class WorkerHook {
 public:
  virtual ~WorkerHook() = default;
  // Called on the worker's thread, by several at once; may block for as long as it likes, also for
  // ever.
  virtual WorkerAct at(WorkerPoint point, const HopTask& task, int32_t worker) = 0;
};

}  // namespace tandem::piggyback
