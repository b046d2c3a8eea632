// A choice that a device made by measuring: of several ways to compute the same, the quickest on
// this machine. Plain data.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

struct TunedChoice {
  std::string work;     // in the device's words; compared as a whole
  std::string way;      // likewise: the chosen way
  int32_t choice = 0;   // its number, for people; 0: the way that is taken without measuring
  double us = 0;        // of the chosen way
  double usual_us = 0;  // of choice 0; 0: it does not serve
  bool operator==(const TunedChoice&) const = default;
};

}  // namespace tandem
