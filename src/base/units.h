// Sizes and durations as people write them: "2GiB", "512MB", "200ms", "1.5s". Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace tandem {

// Bytes of "123", "64KiB", "2GiB", "1.5GB" (KB, MB, GB, TB = powers of 1000; KiB, MiB, GiB, TiB =
// of 1024).
Result<int64_t> parse_bytes(std::string_view text);
// "1.50 GiB".
std::string format_bytes(int64_t bytes);
// "32MiB", "1000000": in the largest unit of 1024 that leaves a whole number, for parse_bytes.
std::string exact_bytes(int64_t bytes);

// A duration of "200ms", "1.5s", "10us", "2min", "30d"; a unit is required, except for 0.
Result<Nanos> parse_duration(std::string_view text);
// "1.23 ms".
std::string format_duration(Nanos duration);
// "1500ms", "0": in days or the largest unit up to seconds that leaves a whole number, for
// parse_duration.
std::string exact_duration(Nanos duration);

}  // namespace tandem
