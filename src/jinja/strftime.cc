#include "jinja/strftime.h"

#include <fmt/format.h>

#include <array>

namespace tandem::jinja {
namespace {

constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};

class TimeFormatter {
 public:
  explicit TimeFormatter(std::chrono::local_seconds time)
      : day_(std::chrono::floor<std::chrono::days>(time)),
        date_(day_),
        clock_(time - day_),
        weekday_(std::chrono::weekday(day_).c_encoding()),
        year_(static_cast<int>(date_.year())),
        month_(static_cast<unsigned>(date_.month())),
        month_day_(static_cast<unsigned>(date_.day())),
        hour_(static_cast<int>(clock_.hours().count())),
        minute_(static_cast<int>(clock_.minutes().count())),
        second_(static_cast<int>(clock_.seconds().count())),
        year_day_(static_cast<int>((day_ - january_first(year_)).count()) + 1) {}

  std::string format(std::string_view pattern) const {
    std::string out;
    for (size_t i = 0; i < pattern.size(); ++i) {
      if (pattern[i] != '%' || i + 1 == pattern.size()) {
        out += pattern[i];
        continue;
      }
      const bool unpadded = pattern[i + 1] == '-' && i + 2 < pattern.size();
      i += unpadded ? 2 : 1;
      std::string piece = directive(pattern[i]);
      if (unpadded) {
        const size_t digits = piece.find_first_not_of("0 ");
        piece.erase(0, digits == std::string::npos ? piece.size() - 1 : digits);
      }
      out += piece;
    }
    return out;
  }

 private:
  static std::chrono::local_days january_first(int year) {
    return std::chrono::local_days(std::chrono::year(year) / std::chrono::January / 1);
  }
  static std::string two(int number) { return fmt::format("{:02}", number); }
  [[nodiscard]] int hour_of_twelve() const { return hour_ % 12 == 0 ? 12 : hour_ % 12; }

  struct IsoWeek {
    int year;
    int week;
  };
  // The week belongs to the year that has its Thursday.
  [[nodiscard]] IsoWeek iso_week() const {
    const std::chrono::local_days thursday =
        day_ + std::chrono::days(4 - (weekday_ == 0 ? 7 : static_cast<int>(weekday_)));
    const int year = static_cast<int>(std::chrono::year_month_day(thursday).year());
    return {year, static_cast<int>((thursday - january_first(year)).count()) / 7 + 1};
  }

  [[nodiscard]] std::string directive(char code) const {
    switch (code) {
      case 'a':
        return std::string(kDays[weekday_].substr(0, 3));
      case 'A':
        return std::string(kDays[weekday_]);
      case 'b':
      case 'h':
        return std::string(kMonths[month_ - 1].substr(0, 3));
      case 'B':
        return std::string(kMonths[month_ - 1]);
      case 'c':
        return format("%a %b %e %H:%M:%S %Y");
      case 'C':
        return two(year_ / 100);
      case 'd':
        return fmt::format("{:02}", month_day_);
      case 'D':
      case 'x':
        return format("%m/%d/%y");
      case 'e':
        return fmt::format("{:2}", month_day_);
      case 'f':
        return "000000";
      case 'F':
        return format("%Y-%m-%d");
      case 'm':
        return fmt::format("{:02}", month_);
      case 'n':
        return "\n";
      case 't':
        return "\t";
      case 'y':
        return two(year_ % 100);
      case 'Y':
        return fmt::format("{}", year_);
      case 'z':
      case 'Z':
        return "";  // a time without a zone
      case '%':
        return "%";
      default:
        return clock_directive(code);
    }
  }

  [[nodiscard]] std::string clock_directive(char code) const {
    switch (code) {
      case 'G':
        return fmt::format("{}", iso_week().year);
      case 'H':
        return two(hour_);
      case 'I':
        return two(hour_of_twelve());
      case 'j':
        return fmt::format("{:03}", year_day_);
      case 'k':
        return fmt::format("{:2}", hour_);
      case 'l':
        return fmt::format("{:2}", hour_of_twelve());
      case 'M':
        return two(minute_);
      case 'p':
        return hour_ < 12 ? "AM" : "PM";
      case 'P':
        return hour_ < 12 ? "am" : "pm";
      case 'r':
        return format("%I:%M:%S %p");
      case 'R':
        return format("%H:%M");
      case 'S':
        return two(second_);
      case 'T':
      case 'X':
        return format("%H:%M:%S");
      case 'u':
        return fmt::format("{}", weekday_ == 0 ? 7U : weekday_);
      case 'U':
        return two((year_day_ + 6 - static_cast<int>(weekday_)) / 7);
      case 'V':
        return two(iso_week().week);
      case 'w':
        return fmt::format("{}", weekday_);
      case 'W':
        return two((year_day_ + 6 - (static_cast<int>(weekday_) + 6) % 7) / 7);
      default:
        return std::string("%") + code;
    }
  }

  const std::chrono::local_days day_;
  const std::chrono::year_month_day date_;
  const std::chrono::hh_mm_ss<std::chrono::seconds> clock_;
  const unsigned weekday_;  // 0 is Sunday
  const int year_;
  const unsigned month_;
  const unsigned month_day_;
  const int hour_;
  const int minute_;
  const int second_;
  const int year_day_;  // from 1
};

}  // namespace

std::string format_time(std::string_view format, std::chrono::local_seconds time) {
  return TimeFormatter(time).format(format);
}

}  // namespace tandem::jinja
