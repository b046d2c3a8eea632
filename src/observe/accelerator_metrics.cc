#include "observe/accelerator_metrics.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>

namespace tandem::observe {

std::string accelerator_metrics_text(const AcceleratorReadings& readings) {
  std::string out;
  const auto add = [&](std::string_view name, std::string_view help, const auto& value) {
    if (value.has_value()) {
      fmt::format_to(std::back_inserter(out),
                     "# HELP tandem_accelerator_{0} {1}\n# TYPE tandem_accelerator_{0} gauge\n"
                     "tandem_accelerator_{0}{{device=\"{2}\"}} {3:.15g}\n",
                     name, help, readings.device, static_cast<double>(*value));
    }
  };
  add("memory_bytes", "Memory of the accelerator", readings.memory_bytes);
  add("memory_used_bytes", "Memory of the accelerator in use, by all processes",
      readings.memory_used_bytes);
  add("busy_share", "Share of the driver's last interval in which a kernel ran",
      readings.busy_share);
  add("memory_busy_share",
      "Share of the driver's last interval in which memory was read or written",
      readings.memory_busy_share);
  add("temperature_celsius", "Temperature of the accelerator's chip", readings.temperature_celsius);
  add("power_watts", "Power that the accelerator draws", readings.power_watts);
  add("clock_hertz", "Clock of the accelerator's processors", readings.clock_hertz);
  return out;
}

}  // namespace tandem::observe
