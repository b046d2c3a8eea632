// A pattern that a whole answer matches or not: literal text, (?:a|b), [abc] or [a-z] of ASCII, and
// ? behind any of these, written as in every regular expression library. It repeats nothing, and
// matching takes at most the pattern's bytes times the answer's. Threads: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::loadgen {

class AnswerPattern {
 public:
  // An error that names what such a pattern cannot have.
  static Result<AnswerPattern> parse(std::string_view text);

  [[nodiscard]] bool matches(std::string_view answer) const;

 private:
  class Parser;
  struct Piece;
  using Sequence = std::vector<Piece>;
  // A character, or one of `members`, or one of `alternatives`; the others are empty.
  struct Piece {
    std::string text;
    std::string members;
    std::vector<Sequence> alternatives;
    bool optional = false;
  };
  // Places in the answer, one flag for each.
  using Places = std::vector<bool>;

  static Places after(const Sequence& sequence, std::string_view answer, Places from);
  static Places after(const Piece& piece, std::string_view answer, const Places& from);

  std::vector<Sequence> alternatives_;
};

}  // namespace tandem::loadgen
