// What a Replace or Split of tokenizer.json looks for: a literal string or a regular expression.
// Threads: const and shared.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/regex.h"

namespace tandem::text {

class Pattern {
 public:
  // From {"String": "..."} or {"Regex": "..."}.
  static Result<Pattern> parse(const nlohmann::json& value, std::string_view where);
  // Needs a string that is not empty.
  static Pattern literal(std::string string) { return Pattern(std::move(string)); }
  static Pattern regex(Regex regex) { return Pattern(std::move(regex)); }

  // Finds matches in one text after another.
  class Finder {
   public:
    explicit Finder(const Pattern& pattern);
    // Appends the matches in `text`, in order, without overlap.
    Status find_all(std::string_view text, std::vector<ByteRange>& matches);

   private:
    const std::string* literal_ = nullptr;
    std::optional<Regex::Matcher> matcher_;
  };

  // The literal, or nullptr for a regular expression.
  [[nodiscard]] const std::string* as_literal() const { return std::get_if<std::string>(&what_); }

 private:
  explicit Pattern(std::variant<std::string, Regex> what) : what_(std::move(what)) {}

  std::variant<std::string, Regex> what_;
};

}  // namespace tandem::text
