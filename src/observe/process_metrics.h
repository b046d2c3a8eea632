// What any process says of itself under the names that Prometheus' clients use (process_*), and
// which build it is (tandem_build_info). Read from /proc when asked. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace tandem::observe {

// What cannot be read is left out.
std::string process_metrics_text();

// The same of what changes: {"cpu_seconds":..,"resident_bytes":..,"started_unix_seconds":..}. {} if
// it cannot be read.
std::string process_json();

// An empty `commit` is published as "unknown".
std::string build_info_text(std::string_view version, std::string_view commit);

}  // namespace tandem::observe
