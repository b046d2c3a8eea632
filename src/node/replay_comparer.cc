#include "node/replay_comparer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "node/record_lines.h"

namespace tandem {
namespace {

using nlohmann::json;

// Records of earlier builds lack these.
constexpr std::array<std::string_view, 4> kLaterFields = {"mode", "first_lane", "binds",
                                                          "step_budget_ns"};

bool is_later_field(std::string_view name) {
  return std::ranges::find(kLaterFields, name) != kLaterFields.end();
}

std::string shown(const json& line, const std::string& key) {
  return line.contains(key) ? line[key].dump() : "nothing";
}

// The first field of two lines that differs; empty: none.
std::string different_field(const json& was, const json& is) {
  for (const auto& [key, value] : was.items()) {
    if (!is.contains(key) || is[key] != value) {
      return key;
    }
  }
  for (const auto& [key, value] : is.items()) {
    if (!was.contains(key) && !is_later_field(key)) {
      return key;
    }
  }
  return "";
}

// Two lists of binds.
std::string different_bind(const json& was, const json& is) {
  for (size_t i = 0; i < std::min(was.size(), is.size()); ++i) {
    if (was[i] != is[i]) {
      const std::string key = was[i].is_object() ? different_field(was[i], is[i]) : "";
      return fmt::format("bind {} differs in '{}': recorded {}, now {}", i, key, was[i].dump(),
                         is[i].dump());
    }
  }
  return fmt::format("recorded {} binds, now {}", was.size(), is.size());
}

std::string describe(const json& was, const json& is, const std::string& key) {
  if (key == "binds" && was.contains(key) && is.contains(key)) {
    return different_bind(was[key], is[key]);
  }
  return fmt::format("'{}' differs: recorded {}, now {}", key, shown(was, key), shown(is, key));
}

}  // namespace

Status ReplayComparer::expect_binds(const json& result) {
  binds_.clear();
  if (!result.contains("binds")) {
    return {};
  }
  if (binder_ == nullptr || !result["binds"].is_array()) {
    return invalid_argument("the record has binds, but its configuration has one tier");
  }
  const auto step = result.at("result").get<int64_t>();
  RecordedBind recorded;
  BindDecision decision;
  for (const json& entry : result["binds"]) {
    RETURN_IF_ERROR(read_bind(entry, step, last_stage_, recorded));
    decision.visitors.clear();
    decision.wait = false;
    binder_->bind(recorded.view, decision);
    append_bind(binds_, recorded.view, decision);
  }
  return {};
}

void ReplayComparer::plan(const SystemView& view, const StepPlan& plan) {
  lines_.push_back(plan_line(view, plan, digest_version_));
}

void ReplayComparer::result(const StepResult& result, const StepTimes& times) {
  lines_.push_back(result_line(result, times, std::exchange(binds_, {})));
}

std::string ReplayComparer::difference(const std::vector<json>& expected) {
  const std::vector<std::string> lines = std::exchange(lines_, {});
  for (size_t i = 0; i < std::max(expected.size(), lines.size()); ++i) {
    if (i >= expected.size() || i >= lines.size()) {
      return fmt::format("recorded {}\n  now did {}",
                         i < expected.size() ? expected[i].dump() : "nothing",
                         i < lines.size() ? lines[i] : "nothing");
    }
    const json& was = expected[i];
    const json is = json::parse(lines[i]);
    if (const std::string key = different_field(was, is); !key.empty()) {
      const std::string kind = is.contains("plan") ? "plan" : "result";
      return fmt::format("the {} of step {}: {}\nrecorded {}\n  now did {}", kind, shown(is, kind),
                         describe(was, is, key), was.dump(), is.dump());
    }
  }
  return "";
}

}  // namespace tandem
