#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace tandem {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array<Unit, 10> kByteUnits{{{"", 1},
                                           {"B", 1},
                                           {"KB", 1e3},
                                           {"MB", 1e6},
                                           {"GB", 1e9},
                                           {"TB", 1e12},
                                           {"KiB", 1024.0},
                                           {"MiB", 1048576.0},
                                           {"GiB", 1073741824.0},
                                           {"TiB", 1099511627776.0}}};
constexpr std::array<Unit, 7> kTimeUnits{{{"ns", 1},
                                          {"us", 1e3},
                                          {"ms", 1e6},
                                          {"s", 1e9},
                                          {"min", 60e9},
                                          {"h", 3600e9},
                                          {"d", 86400e9}}};

struct Quantity {
  double number;
  std::string_view unit;
};

// Splits "1.5GiB" into 1.5 and "GiB"; refuses signs, nan and inf.
Result<Quantity> split_quantity(std::string_view text) {
  if (text.empty() || text.front() < '0' || text.front() > '9') {
    return invalid_argument(fmt::format("'{}' does not begin with a number", text));
  }
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{}) {
    return invalid_argument(fmt::format("'{}' is not a number with a unit", text));
  }
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') {
    unit.remove_prefix(1);
  }
  return Quantity{number, unit};
}

template <size_t N>
Result<int64_t> scale(std::string_view text, const std::array<Unit, N>& units,
                      std::string_view known) {
  ASSIGN_OR_RETURN(const Quantity quantity, split_quantity(text));
  for (const Unit& unit : units) {
    if (unit.name == quantity.unit) {
      const double scaled = quantity.number * unit.factor;
      if (scaled > 9.2e18) {
        return invalid_argument(fmt::format("'{}' is too large", text));
      }
      return static_cast<int64_t>(std::llround(scaled));
    }
  }
  return invalid_argument(
      fmt::format("'{}' has an unknown unit '{}' (known: {})", text, quantity.unit, known));
}

}  // namespace

Result<int64_t> parse_bytes(std::string_view text) {
  return scale(text, kByteUnits, "B, KB, MB, GB, TB, KiB, MiB, GiB, TiB");
}

std::string format_bytes(int64_t bytes) {
  const double size = static_cast<double>(bytes);
  if (bytes >= int64_t{1} << 30) {
    return fmt::format("{:.2f} GiB", size / 1073741824.0);
  }
  if (bytes >= int64_t{1} << 20) {
    return fmt::format("{:.1f} MiB", size / 1048576.0);
  }
  if (bytes >= int64_t{1} << 10) {
    return fmt::format("{:.1f} KiB", size / 1024.0);
  }
  return fmt::format("{} B", bytes);
}

std::string exact_bytes(int64_t bytes) {
  constexpr std::array<std::pair<int64_t, const char*>, 4> kUnits = {
      {{int64_t{1} << 40, "TiB"}, {int64_t{1} << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}}};
  for (const auto& [size, unit] : kUnits) {
    if (bytes != 0 && bytes % size == 0) {
      return fmt::format("{}{}", bytes / size, unit);
    }
  }
  return fmt::format("{}", bytes);
}

Result<Nanos> parse_duration(std::string_view text) {
  if (text == "0") {
    return Nanos{0};
  }
  ASSIGN_OR_RETURN(const int64_t nanos, scale(text, kTimeUnits, "ns, us, ms, s, min, h, d"));
  return Nanos{nanos};
}

std::string format_duration(Nanos duration) {
  const double nanos = static_cast<double>(duration.count());
  if (nanos >= 1e9) {
    return fmt::format("{:.2f} s", nanos / 1e9);
  }
  if (nanos >= 1e6) {
    return fmt::format("{:.2f} ms", nanos / 1e6);
  }
  if (nanos >= 1e3) {
    return fmt::format("{:.2f} us", nanos / 1e3);
  }
  return fmt::format("{} ns", duration.count());
}

std::string exact_duration(Nanos duration) {
  constexpr std::array<std::pair<int64_t, const char*>, 5> kUnits = {{{86'400'000'000'000, "d"},
                                                                      {1'000'000'000, "s"},
                                                                      {1'000'000, "ms"},
                                                                      {1'000, "us"},
                                                                      {1, "ns"}}};
  for (const auto& [nanos, unit] : kUnits) {
    if (duration.count() != 0 && duration.count() % nanos == 0) {
      return fmt::format("{}{}", duration.count() / nanos, unit);
    }
  }
  return "0";
}

}  // namespace tandem
