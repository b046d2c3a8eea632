// Python's datetime.strftime for a time without a zone, with English names. Reads no clock and no
// locale. Any thread.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace tandem::jinja {

std::string format_time(std::string_view format, std::chrono::local_seconds time);

}  // namespace tandem::jinja
