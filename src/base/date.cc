#include "base/date.h"

#include <fmt/chrono.h>

#include <chrono>

namespace tandem {

std::string utc_date_text() {
  const auto now =
      std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
}

}  // namespace tandem
