#include "text/pattern.h"

#include <nlohmann/json.hpp>

#include "text/json_fields.h"

namespace tandem::text {

Result<Pattern> Pattern::parse(const nlohmann::json& value, std::string_view where) {
  if (value.is_object() && value.size() == 1) {
    if (value.contains("String")) {
      ASSIGN_OR_RETURN(std::string string, string_field(value, "String", where));
      if (string.empty()) {
        return bad_file(where, "\"String\" is empty");
      }
      return literal(std::move(string));
    }
    if (value.contains("Regex")) {
      ASSIGN_OR_RETURN(const std::string pattern, string_field(value, "Regex", where));
      ASSIGN_OR_RETURN(Regex compiled, Regex::compile(pattern, where));
      return regex(std::move(compiled));
    }
  }
  return bad_file(where, "\"pattern\" is neither {\"String\": ...} nor {\"Regex\": ...}");
}

Pattern::Finder::Finder(const Pattern& pattern) : literal_(pattern.as_literal()) {
  if (literal_ == nullptr) {
    matcher_.emplace(std::get<Regex>(pattern.what_));
  }
}

Status Pattern::Finder::find_all(std::string_view text, std::vector<ByteRange>& matches) {
  if (literal_ != nullptr) {
    for (size_t at = text.find(*literal_); at != std::string_view::npos;
         at = text.find(*literal_, at + literal_->size())) {
      matches.push_back({at, at + literal_->size()});
    }
    return {};
  }
  matcher_->start(text);
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<ByteRange> match, matcher_->next());
    if (!match) {
      return {};
    }
    matches.push_back(*match);
  }
}

}  // namespace tandem::text
