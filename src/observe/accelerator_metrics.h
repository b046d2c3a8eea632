// Readings of an accelerator by its driver: tandem_accelerator_* for Prometheus. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tandem::observe {

// Empty: the driver does not measure it.
struct AcceleratorReadings {
  std::string device;  // "cuda:0"
  std::optional<int64_t> memory_bytes = {};
  std::optional<int64_t> memory_used_bytes = {};   // by all processes
  std::optional<double> busy_share = {};           // of the driver's last interval: a kernel ran
  std::optional<double> memory_busy_share = {};    // likewise: memory was read or written
  std::optional<double> temperature_celsius = {};  // of the chip
  std::optional<double> power_watts = {};
  std::optional<double> clock_hertz = {};  // of the processors
};

// "" of readings without a figure.
std::string accelerator_metrics_text(const AcceleratorReadings& readings);

}  // namespace tandem::observe
