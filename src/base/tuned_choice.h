// A choice that a device made by measuring: of several ways to compute the same, the quickest on
// this machine. Plain data.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

struct TunedChoice {
  std::string work;     // the kind of work, in the device's words; compared as a whole
  std::string way;      // the chosen way, in the device's words; compared as a whole
  int32_t choice = 0;   // the way's number, for people; way 0 is taken without measuring
  double us = 0;        // microseconds that the chosen way takes
  double usual_us = 0;  // microseconds that way 0 takes; 0: way 0 does not serve
  bool operator==(const TunedChoice&) const = default;
};

}  // namespace tandem
