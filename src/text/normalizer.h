// Rewrites text before it is split: the "normalizer" of tokenizer.json (Sequence, Prepend, Replace,
// NFC, NFD, NFKC, NFKD, Strip, Lowercase). Not here: splitting (pre_tokenizer.h). Threads: const
// and shared.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/pattern.h"

namespace tandem::text {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// `text` (valid UTF-8) in a normal form; time grows as n log n.
Result<std::string> to_unicode_form(std::string_view text, UnicodeForm form);

class Normalizer {
 public:
  // Changes nothing.
  Normalizer() = default;
  // `value` may be null: changes nothing.
  static Result<Normalizer> parse(const nlohmann::json& value, std::string_view where);

  [[nodiscard]] bool changes_nothing() const { return steps_.empty(); }
  // An error if the text would grow beyond reason or a pattern needs too much work.
  [[nodiscard]] Result<std::string> apply(std::string_view text) const;

 private:
  struct Prepend {
    std::string prefix;
  };
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Strip {
    bool left = true;
    bool right = true;
  };
  struct Lowercase {};
  using Step = std::variant<Prepend, Replace, UnicodeForm, Strip, Lowercase>;

  static Status parse_into(const nlohmann::json& value, std::string_view where,
                           std::vector<Step>& steps);
  static Result<std::string> run(const Step& step, std::string text);

  std::vector<Step> steps_;
};

}  // namespace tandem::text
