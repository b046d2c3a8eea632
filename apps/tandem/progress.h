// Progress of long work on standard error: a bar on a terminal, a line now and then elsewhere. One
// thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace tandem {

class ProgressBar {
 public:
  // `what` is "loading weights".
  ProgressBar(std::string what, const Clock& clock);
  void show(int64_t bytes_done, int64_t bytes_total);
  void clear() const;  // takes the bar off the terminal, for a line of the log
  void finish();       // the last line, with the rate until the last show

 private:
  std::string what_;
  const Clock& clock_;
  Nanos began_;
  Nanos shown_{0};
  Nanos last_{0};  // when show was called
  int64_t done_ = 0;
  bool terminal_;
};

}  // namespace tandem
