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

// The same of things that are counted: "7 of 13 points, 12 s, about 10 s left".
class CountProgress {
 public:
  // `things` is "points".
  CountProgress(std::string things, const Clock& clock);
  void show(int64_t done, int64_t total);  // total 0: not known
  void finish() const;                     // the last line, with the time

 private:
  std::string things_;
  const Clock& clock_;
  Nanos began_;
  Nanos shown_ = began_;
  int64_t done_ = 0;
  int64_t shown_done_ = 0;
  int64_t total_ = 0;
  bool terminal_;
};

}  // namespace tandem
