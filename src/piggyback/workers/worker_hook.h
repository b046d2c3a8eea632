// What a host attention worker asks before each part of its work: the door for tests and drills
// that let workers hang, be slow, throw or answer twice, and for nothing in normal operation.
#pragma once

#include <cstdint>

#include "piggyback/workers/attention_task.h"

namespace tandem::piggyback {

enum class WorkerPoint {
  kAppend,  // before the task's K and V are appended
  kAttend,  // before a piece of its attention
  kAnswer,  // its result is written
};

enum class WorkerAct { kGoOn, kThrow, kAnswerTwice };

class WorkerHook {
 public:
  virtual ~WorkerHook() = default;
  // Called on the worker's thread, by several at once; may block for as long as it likes. kThrow
  // throws at this point; kAnswerTwice counts at kAnswer only.
  virtual WorkerAct at(WorkerPoint point, const AttentionTask& task, int32_t worker) = 0;
};

}  // namespace tandem::piggyback
