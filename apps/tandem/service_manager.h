// Reports the state of the process to the service manager that started it (systemd, a unit of
// Type=notify). Does nothing if no service manager asked for that. Not part of the HTTP API:
// /health and /ready are for balancers.
#pragma once

#include <string_view>

namespace tandem {

// `state` is one or more lines of sd_notify(3), for example "READY=1\nSTATUS=serving". A message
// that cannot be delivered is dropped with a warning in the log, and nothing else changes.
void notify_service_manager(std::string_view state);

}  // namespace tandem
