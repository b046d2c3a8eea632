// The calendar, for people and files. Durations and deadlines are measured by a Clock (clock.h):
// the calendar jumps when the machine's date is set. Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

// Now, in UTC: "2026-03-01T12:30:00Z"; and for names of files: "20260301-123000".
std::string utc_date_text();
std::string utc_date_for_names();
// Seconds since 1970 as HTTP writes them: "Sun, 01 Mar 2026 12:30:00 GMT".
std::string http_date(int64_t unix_seconds);

}  // namespace tandem
