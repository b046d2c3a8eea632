// A scenario file of `tandem simulate`: its options, and under `vary` the one or two options whose
// values are swept. Every combination of the values is a point, which is a scenario without `vary`.
// Errors name the file, the line and what to write instead. Threads: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/command.h"
#include "cli/config_file.h"

namespace tandem::sim {

// What a scenario may set: the options of the command, and the keys of a --stream and an --engine.
struct ScenarioKeys {
  cli::Command options;
  cli::Command stream;
  cli::Command engine;
};

// "policy", or "stream.chat.request-rate": the key request-rate of the stream that is named chat;
// or a key of an engine in the same way.
struct VariedKey {
  std::string key;     // as the file has it
  std::string option;  // without dashes; "stream" for a key of a stream, "engine" for an engine's
  std::string member;  // the stream's or engine's name; empty: the option itself is varied
  std::string field;   // of the stream or engine
  int line = 0;
  std::vector<cli::ConfigNode> values;  // texts
};

struct Scenario {
  std::string file;
  cli::ConfigNode options;  // without `vary`; streams are texts as --stream takes them, and so on
  std::vector<VariedKey> vary;
};

struct SweepPoint {
  std::string name;                     // of its folder: "01-policy=sarathi,max-num-seqs=8"
  std::vector<cli::ConfigNode> values;  // one for each varied key
};

Result<Scenario> parse_scenario(const std::string& text, const std::string& file,
                                const ScenarioKeys& keys);
Result<Scenario> read_scenario(const std::string& file, const ScenarioKeys& keys);

// Options of the command line win over those of the file; values of options that take many are
// added to those of the file. A varied option must not be among them.
Status add_given(Scenario& scenario, const std::vector<cli::GivenOption>& given,
                 const ScenarioKeys& keys);

// The first key's values change slowest. Without `vary` there is none.
Result<std::vector<SweepPoint>> points_of(const Scenario& scenario);
// The scenario's options with the values of the point, one of points_of(scenario).
cli::ConfigNode point_options(const Scenario& scenario, const SweepPoint& point,
                              const ScenarioKeys& keys);

// The error with the file, and the line of the option that it is about, in front: of the varied
// value, or else of the file's own; where neither is known, of the point's first value. An error
// about "engine#2" is about the second engine of the list. `point`: null without a sweep.
Error located(const Error& error, const Scenario& scenario, const SweepPoint* point,
              const ScenarioKeys& keys);

}  // namespace tandem::sim
