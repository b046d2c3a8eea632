#include "text/pre_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/utf8.h"
#include "text/json_fields.h"

namespace tandem::text {
namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581

}  // namespace

Result<PreTokenizer> PreTokenizer::parse(const nlohmann::json& value, std::string_view where) {
  PreTokenizer pre_tokenizer;
  if (!value.is_null()) {
    RETURN_IF_ERROR(pre_tokenizer.parse_step(value, where));
  }
  return pre_tokenizer;
}

PreTokenizer PreTokenizer::byte_level_split(Regex pattern) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.steps_.emplace_back(
      Split{Pattern::regex(std::move(pattern)), Behavior::kIsolated, false});
  pre_tokenizer.byte_level_ = true;
  return pre_tokenizer;
}

Status PreTokenizer::parse_step(const nlohmann::json& value, std::string_view where) {
  if (!value.is_object()) {
    return bad_file(where, "is not an object");
  }
  ASSIGN_OR_RETURN(const std::string type, string_field(value, "type", where));
  if (byte_level_) {
    return unsupported(where, fmt::format("the pre-tokenizer \"{}\" after \"ByteLevel\"", type));
  }
  if (type == "Sequence") {
    const nlohmann::json* list = find_field(value, "pretokenizers");
    if (list == nullptr || !list->is_array()) {
      return bad_file(where, "\"pretokenizers\" is not a list");
    }
    for (const nlohmann::json& item : *list) {
      RETURN_IF_ERROR(parse_step(item, where));
    }
    return {};
  }
  if (type == "Split") {
    return parse_split(value, where);
  }
  if (type == "ByteLevel") {
    return parse_byte_level(value, where);
  }
  if (type == "Metaspace") {
    return parse_metaspace(value, where);
  }
  if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool individual, bool_field(value, "individual_digits", where, false));
    return add_split(R"(\p{N})", individual ? Behavior::kIsolated : Behavior::kContiguous, false);
  }
  if (type == "Punctuation") {
    ASSIGN_OR_RETURN(const Behavior behavior, parse_behavior(value, where));
    return add_split(R"([!-/:-@\[-`{-~\p{P}])", behavior, false);
  }
  if (type == "Whitespace") {
    return add_split(R"(\w+|[^\w\s]+)", Behavior::kRemoved, true);
  }
  if (type == "WhitespaceSplit") {
    return add_split(R"(\s)", Behavior::kRemoved, false);
  }
  return unsupported(where, fmt::format("the pre-tokenizer \"{}\"", type));
}

Status PreTokenizer::add_split(std::string_view pattern, Behavior behavior, bool invert) {
  Result<Regex> regex = Regex::compile(pattern, "built in");
  CHECK(regex.ok(), "{}", regex.error().message);
  steps_.emplace_back(Split{Pattern::regex(*std::move(regex)), behavior, invert});
  return {};
}

Result<PreTokenizer::Behavior> PreTokenizer::parse_behavior(const nlohmann::json& value,
                                                            std::string_view where) {
  ASSIGN_OR_RETURN(const std::string name, string_field(value, "behavior", where, "Isolated"));
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  return unsupported(where, fmt::format("the behavior \"{}\" of a pre-tokenizer", name));
}

Status PreTokenizer::parse_split(const nlohmann::json& value, std::string_view where) {
  const nlohmann::json* what = find_field(value, "pattern");
  ASSIGN_OR_RETURN(Pattern pattern,
                   Pattern::parse(what == nullptr ? nlohmann::json() : *what, where));
  ASSIGN_OR_RETURN(const Behavior behavior, parse_behavior(value, where));
  ASSIGN_OR_RETURN(const bool invert, bool_field(value, "invert", where, false));
  steps_.emplace_back(Split{std::move(pattern), behavior, invert});
  return {};
}

Status PreTokenizer::parse_byte_level(const nlohmann::json& value, std::string_view where) {
  ASSIGN_OR_RETURN(const bool prefix, bool_field(value, "add_prefix_space", where, true));
  ASSIGN_OR_RETURN(const bool use_regex, bool_field(value, "use_regex", where, true));
  if (prefix) {
    steps_.emplace_back(PrefixSpace{});
  }
  if (use_regex) {
    RETURN_IF_ERROR(add_split(kGpt2Pattern, Behavior::kIsolated, false));
  }
  byte_level_ = true;
  return {};
}

Status PreTokenizer::parse_metaspace(const nlohmann::json& value, std::string_view where) {
  Metaspace step;
  ASSIGN_OR_RETURN(step.replacement,
                   string_field(value, "replacement", where, std::string(kMetaspace)));
  if (step.replacement.empty() ||
      static_cast<size_t>(front_char(step.replacement).bytes) != step.replacement.size()) {
    return bad_file(where, "\"replacement\" is not one character");
  }
  // Older files have add_prefix_space in place of prepend_scheme.
  ASSIGN_OR_RETURN(const bool prefix, bool_field(value, "add_prefix_space", where, true));
  ASSIGN_OR_RETURN(const std::string scheme,
                   string_field(value, "prepend_scheme", where, prefix ? "always" : "never"));
  if (scheme == "always") {
    step.prefix = Metaspace::Prefix::kAlways;
  } else if (scheme == "first") {
    step.prefix = Metaspace::Prefix::kFirst;
  } else if (scheme == "never") {
    step.prefix = Metaspace::Prefix::kNever;
  } else {
    return unsupported(where, fmt::format("\"prepend_scheme\": \"{}\"", scheme));
  }
  ASSIGN_OR_RETURN(step.split, bool_field(value, "split", where, true));
  steps_.emplace_back(std::move(step));
  return {};
}

bool PreTokenizer::keeps_text() const {
  return std::ranges::none_of(steps_, [](const Step& step) {
    const auto* split = std::get_if<Split>(&step);
    return (split != nullptr && split->behavior == Behavior::kRemoved) ||
           std::holds_alternative<Metaspace>(step);
  });
}

Result<Pieces> PreTokenizer::apply(std::string text, TextPlace place) const {
  Pieces pieces{std::move(text), {}};
  if (!pieces.text.empty()) {
    pieces.ranges.push_back({0, pieces.text.size()});
  }
  for (const Step& step : steps_) {
    if (const auto* split = std::get_if<Split>(&step)) {
      RETURN_IF_ERROR(run_split(*split, pieces));
    } else if (const auto* metaspace = std::get_if<Metaspace>(&step)) {
      RETURN_IF_ERROR(run_metaspace(*metaspace, place, pieces));
    } else {
      run_prefix_space(pieces);
    }
  }
  return pieces;
}

Status PreTokenizer::run_split(const Split& split, Pieces& pieces) {
  Pattern::Finder finder(split.pattern);
  std::vector<ByteRange> result;
  result.reserve(pieces.ranges.size());
  std::vector<ByteRange> matches;
  // The parts of one piece, matches and what lies between them.
  struct Part {
    ByteRange range;
    bool match;
  };
  std::vector<Part> parts;
  for (size_t i = 0; i < pieces.ranges.size(); ++i) {
    const ByteRange whole = pieces.ranges[i];
    matches.clear();
    parts.clear();
    RETURN_IF_ERROR(finder.find_all(pieces[i], matches));
    size_t done = whole.begin;
    for (const ByteRange& match : matches) {
      const ByteRange at{whole.begin + match.begin, whole.begin + match.end};
      if (at.begin > done) {
        parts.push_back({{done, at.begin}, split.invert});
      }
      parts.push_back({at, !split.invert});
      done = at.end;
    }
    if (done < whole.end) {
      parts.push_back({{done, whole.end}, split.invert});
    }
    bool joins_next = false;  // the part before asked for this one
    bool previous_match = false;
    const size_t first = result.size();
    for (const Part& part : parts) {
      const bool has_previous = result.size() > first;
      bool join = false;
      switch (split.behavior) {
        case Behavior::kRemoved:
          if (part.match) {
            continue;
          }
          break;
        case Behavior::kIsolated:
          break;
        case Behavior::kMergedWithPrevious:
          join = part.match && !previous_match && has_previous;
          break;
        case Behavior::kMergedWithNext:
          join = joins_next && !part.match;
          joins_next = part.match;
          break;
        case Behavior::kContiguous:
          join = part.match == previous_match && has_previous;
          break;
      }
      previous_match = part.match;
      if (join) {
        result.back().end = part.range.end;
      } else {
        result.push_back(part.range);
      }
    }
  }
  std::erase_if(result, [](const ByteRange& range) { return range.begin == range.end; });
  pieces.ranges = std::move(result);
  return {};
}

void PreTokenizer::run_prefix_space(Pieces& pieces) {
  Pieces result;
  result.text.reserve(pieces.text.size() + pieces.ranges.size());
  for (size_t i = 0; i < pieces.ranges.size(); ++i) {
    const size_t begin = result.text.size();
    if (pieces[i].front() != ' ') {
      result.text += ' ';
    }
    result.text += pieces[i];
    result.ranges.push_back({begin, result.text.size()});
  }
  pieces = std::move(result);
}

Status PreTokenizer::run_metaspace(const Metaspace& metaspace, TextPlace place, Pieces& pieces) {
  Pieces result;
  for (size_t i = 0; i < pieces.ranges.size(); ++i) {
    const std::string_view piece = pieces[i];
    const size_t begin = result.text.size();
    const bool first = i == 0 && place == TextPlace::kBeginning && pieces.ranges[0].begin == 0;
    const bool prefix = metaspace.prefix == Metaspace::Prefix::kAlways ||
                        (metaspace.prefix == Metaspace::Prefix::kFirst && first);
    if (prefix && piece.front() != ' ' && !piece.starts_with(metaspace.replacement)) {
      result.text += metaspace.replacement;
    }
    for (const char c : piece) {
      if (c == ' ') {
        result.text += metaspace.replacement;
      } else {
        result.text += c;
      }
    }
    result.ranges.push_back({begin, result.text.size()});
  }
  pieces = std::move(result);
  if (!metaspace.split) {
    return {};
  }
  return run_split({Pattern::literal(metaspace.replacement), Behavior::kMergedWithNext, false},
                   pieces);
}

}  // namespace tandem::text
