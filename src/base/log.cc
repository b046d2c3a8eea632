#include "base/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <string>

namespace tandem::log {

Status start(std::string_view level) {
  const spdlog::level::level_enum parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") {
    return invalid_argument(
        fmt::format("unknown log level '{}' (known: trace, debug, info, warning, error, off)",
                    level),
        "log-level");
  }
  spdlog::drop("tandem");
  auto logger = spdlog::stderr_color_mt("tandem");
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  logger->set_level(parsed);
  spdlog::set_default_logger(std::move(logger));
  return {};
}

}  // namespace tandem::log
