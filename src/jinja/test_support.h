// For tests: renders a template with the variables of a JSON object.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "jinja/template.h"

namespace tandem::jinja::testing {

// 15 January 2026, noon, a Thursday.
inline constexpr std::chrono::local_seconds kNow =
    std::chrono::local_days(std::chrono::year(2026) / 1 / 15) + std::chrono::hours(12);

inline Result<std::string> try_render(const std::string& source,
                                      const nlohmann::ordered_json& variables,
                                      const Limits& limits = Limits()) {
  ASSIGN_OR_RETURN(const Template parsed, Template::parse(source));
  std::vector<Variable> given;
  for (const auto& [name, value] : variables.items()) given.push_back({name, &value});
  return parsed.render(given, kNow, limits);
}

// The text, or "error: " and the message without the place, for templates of one line.
inline std::string render(const std::string& source, const nlohmann::ordered_json& variables) {
  const Result<std::string> result = try_render(source, variables);
  if (result.ok()) return *result;
  std::string message = result.error().message;
  for (const char* place : {"chat template, line 1: ", "chat template: line 1: "}) {
    const std::string prefix = place;
    if (message.substr(0, prefix.size()) == prefix) message.erase(0, prefix.size());
  }
  return "error: " + message;
}

struct Case {
  const char* source;
  const char* text;
};

// Renders each source with the same few variables.
inline void expect_all(std::span<const Case> cases) {
  static const nlohmann::ordered_json variables = nlohmann::ordered_json::parse(R"json({
    "s": "Héllo wörld", "x": 2.5, "n": null, "l": [3, 1, 2], "add_generation_prompt": true,
    "m": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": null},
          {"role": "user", "content": "yo"}]})json");
  for (const Case& c : cases) {
    EXPECT_EQ(render(c.source, variables), c.text) << c.source;
  }
}

}  // namespace tandem::jinja::testing
