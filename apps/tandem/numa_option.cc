#include "numa_option.h"

#include <string>

namespace tandem {

void add_numa_option(cli::Command command, device::NumaChoice& choice) {
  command
      .add_option_function<std::string>(
          "--numa",
          [&choice](const std::string& text) {
            const Result<device::NumaChoice> parsed = device::parse_numa(text);
            if (!parsed.ok()) {
              cli::refuse("--numa", parsed.error().message);
            }
            choice = *parsed;
          },
          "Memory nodes to compute on: auto, off or a list, as serve has it (default: auto)")
      .default_str("auto");
}

}  // namespace tandem
