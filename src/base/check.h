// CHECK(condition, format, values...): stops the process with the values when `condition` is false.
// For bugs only, in every build; a caller's mistake returns a Result instead.
#pragma once

#include <fmt/format.h>

#include <string>

namespace tandem {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& details);

}  // namespace tandem

#define CHECK(condition, ...)                                                                \
  do {                                                                                       \
    if (!(condition)) [[unlikely]] {                                                         \
      ::tandem::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
    }                                                                                        \
  } while (false)
