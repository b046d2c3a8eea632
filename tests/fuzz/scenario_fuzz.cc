// A scenario of `tandem simulate` with its sweep, and a --host: what is read, written and read
// again is the same.
#include "fuzz/fuzz.h"
#include "sim/host_list.h"
#include "sim/scenario.h"

namespace tandem::sim {
TANDEM_FUZZ_TARGET(input) {
  cli::CommandLine options("fuzz", "simulate");
  cli::CommandLine stream;
  cli::CommandLine engine;
  std::string text;
  int32_t number = 0;
  std::vector<std::string> texts;
  options.root().add_option("--policy", text, "");
  options.root().add_option("--max-num-seqs,--max-seqs", number, "");
  options.root().add_option("--stream", texts, "");
  options.root().add_option("--host", texts, "");
  options.root().add_option("--engine", texts, "");
  options.root().add_option("--config", "");
  stream.root().add_option("--name", text, "");
  stream.root().add_option("--request-rate", text, "");
  engine.root().add_option("--name", text, "");
  engine.root().add_option("--policy", text, "");
  const Result<HostList> hosts = parse_hosts({std::string(input)}, {});
  CHECK(hosts.ok() ? !hosts->hosts.empty() : !hosts.error().message.empty());
  const ScenarioKeys keys{
      .options = options.root(), .stream = stream.root(), .engine = engine.root()};
  const Result<Scenario> scenario = parse_scenario(std::string(input), "f.yaml", keys);
  if (!scenario.ok()) {
    CHECK(!scenario.error().message.empty());
    return;
  }
  const Result<std::vector<SweepPoint>> points = points_of(*scenario);
  if (!points.ok()) {
    CHECK(!points.error().message.empty());
    return;
  }
  CHECK(points->empty() == scenario->vary.empty());
  constexpr size_t kChecked = 16;  // the others are made alike
  for (size_t i = 0; i < std::min(points->size(), kChecked); ++i) {
    const SweepPoint& point = (*points)[i];
    CHECK(point.name.find('/') == std::string::npos && point.name.size() < 100);
    const std::string written = cli::config_text(point_options(*scenario, point, keys));
    const Result<Scenario> again = parse_scenario(written, "g.yaml", keys);
    CHECK(again.ok(), "{} in {}", again.ok() ? "" : again.error().message, written);
    CHECK(again->vary.empty());
    CHECK(cli::config_text(again->options) == written, "{}", written);
  }
}
}  // namespace tandem::sim
