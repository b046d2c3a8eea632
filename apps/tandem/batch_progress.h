// Progress of a batch run on standard error: a bar on a terminal, a line now and then elsewhere.
// One thread.
#pragma once

#include "base/clock.h"
#include "jobs/batch_run.h"

namespace tandem {

class BatchBar {
 public:
  explicit BatchBar(const Clock& clock);
  void show(const jobs::BatchProgress& progress);
  void finish(const jobs::BatchProgress& progress);  // the summary

 private:
  void clear() const;

  const Clock& clock_;
  Nanos began_;
  Nanos shown_;
  bool terminal_;
  bool drawn_ = false;
};

}  // namespace tandem
