#include "kernels/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace tandem::kernels {

namespace {

Error wrong_choice(std::string_view text, std::string_view why) {
  return invalid_argument(
      fmt::format("'{}' names no kernels: {}; write a family, or e.g. avx2:8,avx512bf16", text,
                  why),
      "isa");
}

// "8" or "*"; 0: neither.
int64_t parse_rows(std::string_view text) {
  if (text == "*") {
    return kAnyRows;
  }
  int64_t rows = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rows);
  return error == std::errc() && end == text.data() + text.size() ? std::max<int64_t>(rows, 0) : 0;
}

// Families with the same products.
struct Group {
  std::vector<const ProductTimes*> members;                         // in order of preference
  std::array<const ProductTimes*, kMeasuredRows.size()> best = {};  // by number of rows
  double score = 0;                                                 // log of seconds
};

// The most preferred, unless another one is faster by more than noise.
const ProductTimes* best_of(const std::vector<const ProductTimes*>& members, size_t i) {
  const auto fastest = std::ranges::min_element(
      members, {}, [i](const ProductTimes* times) { return times->seconds.at(i); });
  const double limit = (*fastest)->seconds.at(i) * (1 + kLeastGain);
  const auto chosen =
      std::find_if(members.rbegin(), members.rend(),
                   [&](const ProductTimes* times) { return times->seconds.at(i) <= limit; });
  return *chosen;
}

std::vector<Group> groups_of(std::span<const ProductTimes> times,
                             const std::function<bool(Isa, Isa)>& same_products) {
  std::vector<Group> groups;
  for (const ProductTimes& one : times) {
    const auto its = std::ranges::find_if(groups, [&](const Group& group) {
      return same_products(group.members.front()->isa, one.isa);
    });
    (its == groups.end() ? groups.emplace_back() : *its).members.push_back(&one);
  }
  for (Group& group : groups) {
    for (size_t i = 0; i < kMeasuredRows.size(); ++i) {
      group.best.at(i) = best_of(group.members, i);
      group.score += kRowWeights.at(i) * std::log(group.best.at(i)->seconds.at(i));
    }
  }
  return groups;
}

// Between two measured numbers of rows the choice changes at their geometric mean.
Choice choice_of(const Group& group) {
  Choice choice(group.members.back()->isa);
  for (size_t i = 0; i < kMeasuredRows.size(); ++i) {
    const bool last = i + 1 == kMeasuredRows.size();
    const int64_t most_rows =
        last ? kAnyRows
             : static_cast<int64_t>(
                   std::sqrt(static_cast<double>(kMeasuredRows.at(i) * kMeasuredRows.at(i + 1))));
    const Isa isa = group.best.at(i)->isa;
    if (!choice.products.empty() && choice.products.back().isa == isa) {
      choice.products.back().most_rows = most_rows;
    } else {
      choice.products.push_back({most_rows, isa});
    }
  }
  if (choice.products.back().isa == choice.isa) {
    choice.products.pop_back();
  }
  return choice;
}

}  // namespace

std::string choice_text(const Choice& choice) {
  std::string text;
  for (const Choice::Products& products : choice.products) {
    text +=
        fmt::format("{}:{},", isa_name(products.isa),
                    products.most_rows == kAnyRows ? "*" : fmt::format("{}", products.most_rows));
  }
  return text + std::string(isa_name(choice.isa));
}

Result<Choice> parse_choice(std::string_view text) {
  Choice choice;
  std::string_view rest = text;
  for (size_t comma = rest.find(','); comma != rest.npos; comma = rest.find(',')) {
    const std::string_view part = rest.substr(0, comma);
    const size_t colon = part.find(':');
    if (colon == part.npos) {
      return wrong_choice(text, "a family without a number of rows stands before another");
    }
    const int64_t rows = parse_rows(part.substr(colon + 1));
    if (rows <= (choice.products.empty() ? 0 : choice.products.back().most_rows)) {
      return wrong_choice(text, "numbers of rows must be above 0 and ascend");
    }
    ASSIGN_OR_RETURN(const Isa isa, parse_isa(part.substr(0, colon)));
    choice.products.push_back({rows, isa});
    rest.remove_prefix(comma + 1);
  }
  ASSIGN_OR_RETURN(choice.isa, parse_isa(rest));
  return choice;
}

Result<KernelSet> kernel_set(const Choice& choice) {
  ASSIGN_OR_RETURN(const Kernels* all, kernels_for(choice.isa));
  KernelSet set(*all);
  for (const Choice::Products& products : choice.products) {
    ASSIGN_OR_RETURN(const Kernels* kernels, kernels_for(products.isa));
    if (!same_products(*all, *kernels)) {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("matrix products of {} and {} differ on this machine, so a run "
                               "cannot mix them; choose one family",
                               kernels->name, all->name),
                   "isa"};
    }
    set.add(products.most_rows, *kernels);
  }
  return set;
}

Choice choose(std::span<const ProductTimes> times,
              const std::function<bool(Isa, Isa)>& same_products) {
  CHECK(!times.empty(), "no family to choose from");
  const std::vector<Group> groups = groups_of(times, same_products);
  const Group* usual = nullptr;  // the one of the most preferred family
  const Group* fastest = &groups.front();
  for (const Group& group : groups) {
    const bool has_usual = group.members.back()->isa == times.back().isa;
    usual = has_usual ? &group : usual;
    fastest = group.score < fastest->score ? &group : fastest;
  }
  const bool gains = usual->score - fastest->score > std::log(1 + kLeastGain);
  return choice_of(gains ? *fastest : *usual);
}

}  // namespace tandem::kernels
