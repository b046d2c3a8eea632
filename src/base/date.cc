#include "base/date.h"

#include <fmt/chrono.h>

#include <chrono>
#include <ctime>

namespace tandem {
namespace {

std::tm utc_now() {
  return fmt::gmtime(
      std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now()));
}

}  // namespace

std::string utc_date_text() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", utc_now()); }
std::string http_date(int64_t unix_seconds) {
  return fmt::format("{:%a, %d %b %Y %H:%M:%S GMT}",
                     fmt::gmtime(static_cast<std::time_t>(unix_seconds)));
}
std::string utc_date_for_names() { return fmt::format("{:%Y%m%d-%H%M%S}", utc_now()); }

}  // namespace tandem
