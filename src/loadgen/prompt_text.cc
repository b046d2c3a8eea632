#include "loadgen/prompt_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/log.h"
#include "workload/number.h"
#include "workload/random.h"

namespace tandem::loadgen {

namespace {

// Words that most vocabularies hold whole, with the space before them; letters for those that do
// not.
constexpr std::string_view kWords =
    " the of and to in is it you that he was for on are with as his they at be this from have or "
    "by one had not but what all were when we there can an your which their said if do will each "
    "about how up out them then she many some so these would other into has more her two like him "
    "see time could no make than first been its who now people my made over did down only way find "
    "use may water long little very after words called just where most know";
constexpr std::string_view kLetters = "etaoinshrdlucmfwypvbgk";

std::string joined(std::span<const std::string> units) {
  std::string text;
  for (const std::string& unit : units) {
    text += unit;
  }
  return text.starts_with(' ') ? text.substr(1) : text;
}

std::vector<std::vector<std::string>> alphabets() {
  std::vector<std::string> words;
  for (const std::string_view word : workload::split(kWords.substr(1), ' ')) {
    words.push_back(fmt::format(" {}", word));
  }
  std::vector<std::string> spaced;
  std::vector<std::string> letters;
  for (const char c : kLetters) {
    spaced.push_back({' ', c});
    letters.emplace_back(1, c);
  }
  std::vector<std::string> capitals;
  for (char c = 'A'; c <= 'Z'; ++c) {
    capitals.emplace_back(1, c);
  }
  return {words, spaced, letters, capitals};
}

constexpr size_t kFewestUnits = 8;
constexpr size_t kEnoughUnits = 16;  // with fewer, another alphabet may have more

class UnitFinder {
 public:
  explicit UnitFinder(const CountTokens& count) : count_(count) {}

  // The units of `alphabet` that count as one token in company; empty when there are too few.
  Result<PromptUnits> try_alphabet(const std::vector<std::string>& alphabet) {
    PromptUnits found;
    ASSIGN_OR_RETURN(const bool has_overhead, measure_overhead(alphabet.front(), found));
    if (!has_overhead) {
      return found;
    }
    RETURN_IF_ERROR(keep_single(alphabet.front(), alphabet, found));
    RETURN_IF_ERROR(thin_out(found));
    if (found.units.size() < kFewestUnits) {
      found.units.clear();
    }
    return found;
  }

  // Units of whatever length, and how long they are on average.
  Result<PromptUnits> approximate(std::vector<std::string> alphabet) {
    alphabet.resize(std::min<size_t>(alphabet.size(), 2 * kFewestUnits));  // fits small contexts
    PromptUnits found;
    found.units = alphabet;
    ASSIGN_OR_RETURN(const int64_t once, count_(joined(alphabet)));
    std::vector<std::string> twofold = alphabet;
    twofold.insert(twofold.end(), alphabet.begin(), alphabet.end());
    ASSIGN_OR_RETURN(const int64_t twice, count_(joined(twofold)));
    if (twice <= once || 2 * once < twice) {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("the server counts {} tokens of a text and {} of the same text "
                               "twice; it must report usage.prompt_tokens",
                               once, twice),
                   {}};
    }
    found.exact = false;
    found.overhead_tokens = static_cast<int32_t>(2 * once - twice);
    found.tokens_per_unit =
        static_cast<double>(twice - once) / static_cast<double>(alphabet.size());
    return found;
  }

 private:
  // Tokens that the server adds to a text that begins with `first`. The word itself counts as one
  // token here; further tokens of the word at the start of a text are overhead, too. False when the
  // counts make no sense.
  Result<bool> measure_overhead(const std::string& first, PromptUnits& found) {
    ASSIGN_OR_RETURN(const int64_t once, count_(joined(std::vector{first})));
    ASSIGN_OR_RETURN(const int64_t twice, count_(joined(std::vector{first, first})));
    const int64_t overhead = once - (twice - once);
    constexpr int64_t kMostOverhead = 100'000;
    if (twice <= once || overhead < 0 || overhead > kMostOverhead) {
      return false;
    }
    found.overhead_tokens = static_cast<int32_t>(overhead);
    return true;
  }

  // Halves the candidates until a half counts one token a unit, or is a single misfit. Each half is
  // counted behind `first`, with which the overhead was measured.
  Status keep_single(const std::string& first, std::span<const std::string> candidates,
                     PromptUnits& found) {
    std::vector<std::string> text = {first};
    text.insert(text.end(), candidates.begin(), candidates.end());
    ASSIGN_OR_RETURN(const int64_t tokens, count_(joined(text)));
    if (tokens == found.overhead_tokens + std::ssize(text)) {
      found.units.insert(found.units.end(), candidates.begin(), candidates.end());
      return {};
    }
    if (candidates.size() == 1) {
      return {};
    }
    const size_t half = candidates.size() / 2;
    RETURN_IF_ERROR(keep_single(first, candidates.first(half), found));
    return keep_single(first, candidates.subspan(half), found);
  }

  // Whether units count the same in any order behind the first one.
  Result<bool> verified(const PromptUnits& found) {
    workload::Random random(1);
    for (const size_t length : {size_t{16}, size_t{96}, size_t{160}}) {
      std::vector<std::string> text = {found.units.front()};
      while (text.size() < length) {
        text.push_back(found.units[random.below(found.units.size())]);
      }
      ASSIGN_OR_RETURN(const int64_t tokens, count_(joined(text)));
      if (tokens != found.overhead_tokens + static_cast<int64_t>(length)) {
        return false;
      }
    }
    return true;
  }

  // Removes units that form tokens with others, the worst quarter first, until no order does. Only
  // letters of small vocabularies need it: neighbours that are words stay apart.
  Status thin_out(PromptUnits& found) {
    while (found.units.size() >= kFewestUnits) {
      ASSIGN_OR_RETURN(const bool done, verified(found));
      if (done) {
        return {};
      }
      RETURN_IF_ERROR(remove_worst_quarter(found));
      // Another unit may be the first one now.
      ASSIGN_OR_RETURN(const bool has_overhead, measure_overhead(found.units.front(), found));
      if (!has_overhead) {
        found.units.clear();
      }
    }
    return {};
  }

  Status remove_worst_quarter(PromptUnits& found) {
    std::vector<std::pair<int64_t, std::string>> by_merges;
    for (const std::string& unit : found.units) {
      std::vector<std::string> text = {found.units.front()};
      for (const std::string& other : found.units) {  // the unit before and after every other one
        text.push_back(unit);
        text.push_back(other);
      }
      ASSIGN_OR_RETURN(const int64_t tokens, count_(joined(text)));
      by_merges.emplace_back(std::abs(found.overhead_tokens + std::ssize(text) - tokens), unit);
    }
    std::ranges::stable_sort(by_merges, {}, [](const auto& entry) { return entry.first; });
    // A quarter at a time: one by one would ask the server hundreds of times.
    by_merges.resize(by_merges.size() - (by_merges.size() + 3) / 4);
    found.units.clear();
    for (const auto& [merges, unit] : by_merges) {
      found.units.push_back(unit);
    }
    return {};
  }

  const CountTokens& count_;
};

}  // namespace

Result<PromptUnits> find_units(const CountTokens& count) {
  UnitFinder finder(count);
  const std::vector<std::vector<std::string>> all = alphabets();
  PromptUnits largest;
  for (const std::vector<std::string>& alphabet : all) {
    ASSIGN_OR_RETURN(PromptUnits found, finder.try_alphabet(alphabet));
    if (found.units.size() > largest.units.size()) {
      largest = std::move(found);
    }
    if (largest.units.size() >= kEnoughUnits) {
      break;
    }
  }
  return largest.units.empty() ? finder.approximate(all.front()) : largest;
}

std::string make_prompt(const std::vector<workload::PromptPart>& parts, const PromptUnits& units) {
  int64_t tokens = 0;
  for (const workload::PromptPart& part : parts) {
    tokens += part.tokens;
  }
  const double wanted = static_cast<double>(std::max<int64_t>(tokens - units.overhead_tokens, 1));
  int64_t left = std::max<int64_t>(std::llround(wanted / units.tokens_per_unit), 1);
  std::string text;
  for (const workload::PromptPart& part : parts) {
    workload::Random random(part.seed);
    const int64_t of_part =
        std::min(left, std::max<int64_t>(std::llround(part.tokens / units.tokens_per_unit), 1));
    for (int64_t i = 0; i < of_part; ++i) {
      const std::string& drawn = units.units[random.below(units.units.size())];
      text += text.empty() ? joined(std::span(units.units).first(1)) : drawn;
    }
    left -= of_part;
  }
  return text;
}

}  // namespace tandem::loadgen
