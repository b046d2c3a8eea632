// How far the measuring of step times is, on standard error: a bar on a terminal, a line now and
// then elsewhere. One thread.
#pragma once

#include <string_view>

#include "base/clock.h"

namespace tandem {

class ProfileBar {
 public:
  explicit ProfileBar(const Clock& clock);
  // `share` of the time, 0 .. 1.
  void show(double share, std::string_view what);
  void clear();

 private:
  const Clock& clock_;
  Nanos shown_;
  bool terminal_;
  bool drawn_ = false;
};

}  // namespace tandem
