// Task files: tasks that are complete; every checker ends on every answer.
#include "fuzz/fuzz.h"
#include "loadgen/task_file.h"

namespace tandem::loadgen {
TANDEM_FUZZ_TARGET_IN_TIME(input) {
  const Result<std::vector<AnswerTask>> tasks = parse_tasks(input, "fuzz");
  if (!tasks.ok()) {
    CHECK(!tasks.error().message.empty());
    return;
  }
  CHECK(!tasks->empty());
  for (const AnswerTask& task : *tasks) {
    CHECK(task.messages.is_array() && !task.messages.empty());
  }
  (void)is_right(tasks->front(), input.substr(0, 100));
}
}  // namespace tandem::loadgen
