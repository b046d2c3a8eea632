#include "sim/scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::sim {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ScenarioTest : public ::testing::Test {
 protected:
  ScenarioTest() {
    const cli::Command options = command_.root();
    options.add_option("--policy", policy_, "");
    options.add_option("--max-num-seqs,--max-seqs", seqs_, "");
    options.add_option("--stream", streams_, "");
    options.add_option("--host", streams_, "");
    options.add_option("--engine", streams_, "");
    options.add_option("--goodput", goodput_, "");
    options.add_option("scenario,--config", file_, "");
    options.add_option("-o,--out", file_, "");
    options.let_last_win();
    stream_.root().add_option("--name", policy_, "");
    stream_.root().add_option("--request-rate", rate_, "");
    engine_.root().add_option("--name", policy_, "");
    engine_.root().add_option("--policy", policy_, "");
  }

  Result<Scenario> parse(const std::string& text) { return parse_scenario(text, "s.yaml", keys()); }
  std::string error_of(const std::string& text) {
    const Result<Scenario> scenario = parse(text);
    if (!scenario.ok()) {
      return scenario.error().message;
    }
    const Result<std::vector<SweepPoint>> points = points_of(*scenario);
    return points.ok() ? "" : points.error().message;
  }
  std::vector<SweepPoint> points(const std::string& text) { return *points_of(*parse(text)); }
  std::string written(const std::string& text, size_t point) {
    const Scenario scenario = *parse(text);
    return cli::config_text(point_options(scenario, points_of(scenario)->at(point), keys()));
  }
  [[nodiscard]] ScenarioKeys keys() const {
    return {.options = command_.root(), .stream = stream_.root(), .engine = engine_.root()};
  }

  cli::CommandLine command_;
  cli::CommandLine stream_;
  cli::CommandLine engine_;
  std::string policy_;
  std::string file_;
  int32_t seqs_ = 0;
  double rate_ = 0;
  std::vector<std::string> streams_;
  std::vector<std::string> goodput_;
};

TEST_F(ScenarioTest, HostsMayBeMaps) {
  const Result<Scenario> scenario = parse("host:\n  - {kv: 10GiB, gbps: 5}\n  - kv=1GiB\n");
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  const std::vector<cli::ConfigNode>& hosts = scenario->options.inner.front().inner;
  ASSERT_EQ(hosts.size(), 2U);
  EXPECT_EQ(hosts[0].text, "kv=10GiB;gbps=5");
  EXPECT_EQ(hosts[1].text, "kv=1GiB");
  EXPECT_THAT(error_of("host: {kv: {a: 1}}\n"), HasSubstr("the key 'kv' of a host takes"));
}

TEST_F(ScenarioTest, WithoutVaryThereAreNoPoints) {
  const Result<Scenario> scenario = parse("policy: sarathi\n");
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  EXPECT_TRUE(points_of(*scenario)->empty());
}

TEST_F(ScenarioTest, EveryCombinationIsAPoint) {
  const std::string text =
      "vary:\n  policy: [a, b]\n  max_seqs: [8, 16]\nmax-num-seqs: 4\ngoodput: [x, y]\n";
  const std::vector<SweepPoint> all = points(text);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].name, "1-policy=a,max-num-seqs=8");
  EXPECT_EQ(all[1].name, "2-policy=a,max-num-seqs=16");
  EXPECT_EQ(all[3].name, "4-policy=b,max-num-seqs=16");
  EXPECT_EQ(written(text, 1), "goodput:\n  - x\n  - y\npolicy: a\nmax-num-seqs: 16\n")
      << "the file's own value gives way, whichever name of the option it has";
}

TEST_F(ScenarioTest, AKeyOfAStreamIsSetInItsText) {
  const std::string text =
      "stream:\n  - {name: chat, request-rate: 1}\n  - name=bulk;random-input-len=7\n"
      "vary:\n  stream.bulk.request-rate: [2]\n  stream.chat.request_rate: [3, 4]\n";
  const std::vector<SweepPoint> all = points(text);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1].name, "2-bulk.request-rate=2,chat.request-rate=4");
  EXPECT_EQ(written(text, 1),
            "stream:\n  - name=chat;request-rate=4\n"
            "  - name=bulk;random-input-len=7;request-rate=2\n");
}

TEST_F(ScenarioTest, NamesOfFoldersHoldNothingOdd) {
  const std::vector<SweepPoint> all =
      points("vary: {policy: [\"../a b\", \"" + std::string(300, 'x') + "\"]}\n");
  EXPECT_EQ(all[0].name, "1-policy=.._a_b");
  EXPECT_LT(all[1].name.size(), 100U);
}

TEST_F(ScenarioTest, WhatVaryMustNotBe) {
  for (const auto& [text, said] : std::vector<std::pair<std::string, std::string>>{
           {"vary:\n", "s.yaml:1: vary: it names nothing to vary; give one or two keys"},
           {"vary: {}\n", "it names nothing to vary"},
           {"policy: a\nvary: [policy]\n", "s.yaml:2: vary: it is not a map"},
           {"vary: policy\n", "it is not a map"},
           {"vary: {policy: [a], goodput: [b], max-seqs: [1]}\n", "3 keys are more than two"},
           {"vary:\n  polcy: [a]\n", "s.yaml:2: vary: unknown key 'polcy', did you mean policy?"},
           {"vary: {policy: []}\n", "the list of 'policy' is empty"},
           {"vary: {policy: a}\n", "needs a list of values; write policy: [A, B]"},
           {"vary: {policy: [[a]]}\n", "is a list, a map or nothing"},
           {"vary: {policy: [a, ~]}\n", "is a list, a map or nothing"},
           {"vary:\n  policy:\n    - a\n    - a\n",
            "s.yaml:4: vary: 'policy' has the value a twice"},
           {"vary: {max-seqs: [8, 8.0]}\n", "has the value 8.0 twice"},
           {"vary: {max-seqs: [8], max_num_seqs: [9]}\n", "are the same option"},
           {"vary: {out: [a, b]}\n", "cannot be varied"},
           {"vary: {config: [a]}\n", "cannot be varied"},
           {"vary: {stream: [name=a], stream.a.request-rate: [1]}\n", "cannot both be varied"},
           {"vary: {stream.chat.name: [a]}\n", "says which one is meant"},
           {"vary: {stream.chat: [1]}\n", "write stream.NAME.KEY"},
           {"vary: {stream.chat.rate: [1]}\n", "unknown key 'rate' of a stream"},
           {"vary: {stream.chat.request-rat: [1]}\n", "did you mean request-rate?"},
           {"vary: {stream.chat.request-rate: [1]}\n", "no stream has a name"},
           {"stream: [name=a, name=b]\nvary: {stream.c.request-rate: [1]}\n", "there are a, b"},
           {"stream: [name=a, name=a]\nvary: {stream.a.request-rate: [1]}\n", "two streams"},
           {"stream: [name=a]\nvary: {stream.a.request-rate: [1;2]}\n", "holds a ;"},
           {"vary: {policy: [a]}\nvary: {policy: [b]}\n", "s.yaml:2: vary: it stands in line 1"}}) {
    EXPECT_THAT(error_of(text), HasSubstr(said)) << text;
  }
}

TEST_F(ScenarioTest, WhatTheRestMustNotBe) {
  EXPECT_THAT(error_of("policy: a\npolicy: b\n"),
              HasSubstr("s.yaml:2: the key 'policy' stands in"));
  EXPECT_THAT(error_of("max-seqs: 1\nmax_num_seqs: 2\n"), HasSubstr("stands in line 1 already"));
  EXPECT_THAT(error_of("config: other.yaml\n"), HasSubstr("cannot name another one"));
  EXPECT_THAT(error_of("polic: a\n"), HasSubstr("did you mean policy?"));
  EXPECT_THAT(error_of("stream:\n  - {name: [[a]]}\n"), HasSubstr("s.yaml:2: the key 'name'"));
  EXPECT_THAT(error_of("stream: {name: a;b}\n"), HasSubstr("holds a ;"));
}

TEST_F(ScenarioTest, TooManyPoints) {
  std::string values;
  for (int i = 0; i < 200; ++i) {
    values += std::to_string(i) + ", ";
  }
  EXPECT_THAT(error_of("vary: {policy: [" + values + "], max-seqs: [" + values + "]}\n"),
              HasSubstr("40000 points are more than"));
}

TEST_F(ScenarioTest, FlagsGoBeforeTheFileAndAddToLists) {
  Result<Scenario> scenario = parse("policy: a\nmax_seqs: 3\ngoodput: [x]\n");
  ASSERT_TRUE(scenario.ok());
  const Status added =
      add_given(*scenario,
                {{.name = "policy", .default_text = "", .given = {"b", "c"}},
                 {.name = "goodput", .default_text = "", .given = {"y"}, .takes_many = true},
                 {.name = "max-num-seqs", .default_text = "4", .given = {}}},
                keys());
  ASSERT_TRUE(added.ok());
  EXPECT_EQ(cli::config_text(scenario->options),
            "max_seqs: 3\npolicy: c\ngoodput:\n  - x\n  - y\n");
}

TEST_F(ScenarioTest, AVariedOptionIsNotAFlag) {
  Result<Scenario> scenario = parse("vary:\n  policy: [a, b]\n");
  ASSERT_TRUE(scenario.ok());
  const Status added =
      add_given(*scenario, {{.name = "policy", .default_text = "", .given = {"c"}}}, keys());
  ASSERT_FALSE(added.ok());
  EXPECT_THAT(added.error().message,
              AllOf(HasSubstr("s.yaml:2"), HasSubstr("--policy on the command line")));
}

TEST_F(ScenarioTest, ErrorsAreGivenTheLineOfTheirOption) {
  const Scenario scenario = *parse("max-seqs: many\nvary:\n  policy:\n    - a\n    - b\n");
  const std::vector<SweepPoint> all = *points_of(scenario);
  const auto said = [&](const Error& error, const SweepPoint* point) {
    return located(error, scenario, point, keys()).message;
  };
  EXPECT_EQ(said(invalid_argument("--policy: no", ""), &all[1]),
            "s.yaml:5: in the point 2-policy=b: --policy: no");
  EXPECT_EQ(said(invalid_argument("too much", "max-num-seqs"), &all[1]),
            "s.yaml:1: in the point 2-policy=b: too much");
  EXPECT_EQ(said(invalid_argument("too much", "max_num_seqs"), nullptr), "s.yaml:1: too much");
  EXPECT_EQ(said(invalid_argument("--elsewhere: no", ""), nullptr), "--elsewhere: no");
  EXPECT_EQ(said(invalid_argument("does not fit", ""), &all[0]),
            "s.yaml:4: in the point 1-policy=a: does not fit");
}

TEST_F(ScenarioTest, EnginesMayBeMapsWithHostsOfTheirOwn) {
  const Result<Scenario> scenario = parse(
      "engine:\n  - {name: gpu, policy: a, host: [{kv: 10GiB, gbps: 5}, {kv: 1GiB}]}\n"
      "  - name=cpu;policy=b\n");
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  const std::vector<cli::ConfigNode>& engines = scenario->options.inner.front().inner;
  ASSERT_EQ(engines.size(), 2U);
  EXPECT_EQ(engines[0].text, "name=gpu;policy=a;host=kv=10GiB,gbps=5;host=kv=1GiB");
  EXPECT_EQ(engines[1].text, "name=cpu;policy=b");
  EXPECT_THAT(error_of("engine: {name: {a: 1}}\n"), HasSubstr("the key 'name' of an engine takes"));
  EXPECT_THAT(error_of("engine: {name: a, host: {kv: '1,2'}}\n"), HasSubstr("holds a comma"));
}

TEST_F(ScenarioTest, AKeyOfAnEngineIsVaried) {
  const std::string text =
      "engine: [name=gpu;policy=a, name=cpu]\nvary: {engine.cpu.policy: [x, y]}\n";
  EXPECT_EQ(points(text).at(1).name, "2-cpu.policy=y");
  EXPECT_THAT(written(text, 1), HasSubstr("name=cpu;policy=y"));
  EXPECT_THAT(error_of("engine: [name=cpu]\nvary: {engine.cpus.policy: [x]}\n"),
              AllOf(HasSubstr("s.yaml:2"), HasSubstr("no engine is named 'cpus'"),
                    HasSubstr("did you mean cpu?")));
  EXPECT_THAT(
      error_of("engine: [name=cpu]\nvary: {engine.cpu.polcy: [x]}\n"),
      AllOf(HasSubstr("unknown key 'polcy' of an engine"), HasSubstr("did you mean policy?")));
  EXPECT_THAT(error_of("vary: {engine.policy: [x]}\n"), HasSubstr("write engine.NAME.KEY"));
}

TEST_F(ScenarioTest, AnErrorAboutAnItemOfAListNamesItsLine) {
  const Result<Scenario> scenario =
      parse("engine:\n  - {name: gpu, policy: a}\n  - {name: gpu, policy: b}\n");
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  const auto where = [&](const std::string& param) {
    return located(invalid_argument("wrong", param), *scenario, nullptr, keys()).message;
  };
  EXPECT_EQ(where("engine#2"), "s.yaml:3: wrong");
  EXPECT_EQ(where("engine#1"), "s.yaml:2: wrong");
  EXPECT_EQ(where("engine#9"), "s.yaml:1: wrong");
  EXPECT_EQ(where("engine"), "s.yaml:1: wrong");
}

}  // namespace
}  // namespace tandem::sim
