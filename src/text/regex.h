// Regular expressions of tokenizer files: Unicode, written for Oniguruma (as Hugging Face's
// tokenizers read them), run by PCRE2. Not here: captures, replacing. Patterns are not trusted:
// work per match is bounded. Units: byte offsets into valid UTF-8. Threads: a Regex is const and
// shared; a Matcher has one owner.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::text {

struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
};

class Regex {
 public:
  // `where` names the file and field in errors.
  static Result<Regex> compile(std::string_view pattern, std::string_view where);

  // Finds matches in one text after another; costly to make, cheap to use.
  class Matcher {
   public:
    explicit Matcher(const Regex& regex);
    ~Matcher();
    Matcher(const Matcher&) = delete;
    Matcher& operator=(const Matcher&) = delete;

    // Starts on `text` (valid UTF-8; must live while next() is called).
    void start(std::string_view text);
    // The next match, which may be empty; nullopt at the end. An error if the pattern needs too
    // much work.
    Result<std::optional<ByteRange>> next();

   private:
    struct State;
    const Regex& regex_;
    std::unique_ptr<State> state_;
    std::string_view text_;
    size_t position_ = 0;
    std::optional<size_t> last_end_;
  };

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

}  // namespace tandem::text
