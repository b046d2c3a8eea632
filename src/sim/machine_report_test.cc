#include "sim/machine_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "sim/machine_cards.h"

namespace tandem::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

observe::StepRecord step_of(Nanos started, int64_t visits) {
  observe::StepRecord record;
  record.started = started;
  record.duration = milliseconds(100);
  record.prefill_tokens = 10;
  record.resident_rows = 30;
  record.regime = "mixed";
  record.predicted = milliseconds(90);
  record.visits = visits;
  return record;
}

// Ten seconds: the accelerator works in all but the last two, the host from the fifth to the ninth.
MachineLog a_log(int64_t host_blocks) {
  ManualClock clock;
  BusySides sides;
  MachineLog log;
  log.begin(clock, sides, "piggyback");
  sides.accelerator.add(seconds(0), seconds(8));
  if (host_blocks > 0) {
    sides.host.add(seconds(5), seconds(9));
  }
  observe::TierRecord tiers{.counts = {.workers = 1, .layers = 2}, .max_rows = 64};
  for (int i = 0; i < 100; ++i) {
    log.on_step(step_of(clock.now(), i % 4));
    log.on_gauges({.running = 20,
                   .blocks_in_use = 10,
                   .total_blocks = 20,
                   .offloaded = host_blocks > 0 ? 8 : 0,
                   .host_blocks_in_use = host_blocks / 4,
                   .host_blocks = host_blocks});
    if (host_blocks > 0) {
      tiers.counts.hops += 4;
      log.on_tiers(tiers);
    }
    clock.advance(milliseconds(100));
  }
  log.end();
  return log;
}

double value_of(const std::vector<loadgen::Headline>& headlines, const std::string& name) {
  const auto found = std::ranges::find(headlines, name, &loadgen::Headline::name);
  EXPECT_NE(found, headlines.end()) << name;
  return found == headlines.end() ? -1 : found->value.value_or(-1);
}

TEST(MachineReport, SaysWhetherLanesPaidWhereAPolicyWeighedThem) {
  ManualClock clock;
  BusySides sides;
  MachineLog log;
  log.begin(clock, sides, "overlap");
  for (const double ratio : {4.0, 8.0, 12.0}) {
    observe::StepRecord step = step_of(clock.now(), 1);
    step.inequality = LanesInequality{.rate_ratio = ratio, .bound = 10};
    log.on_step(step);
    log.on_step(step_of(clock.now(), 1));  // not weighed
    clock.advance(milliseconds(100));
  }
  log.end();
  const auto headlines = machine_headlines(log, std::nullopt);
  const auto value = [&](const std::string& name) {
    const auto found = std::ranges::find(headlines, name, &loadgen::Headline::name);
    return found == headlines.end() ? -1 : found->value.value_or(-1);
  };
  EXPECT_EQ(value("inequality_rate_ratio"), -1) << "one tier";
  const auto json = machine_json(log, std::nullopt);
  EXPECT_EQ(json["inequality"]["steps"], 3);
  EXPECT_DOUBLE_EQ(json["inequality"]["rate_ratio"], 8);
  EXPECT_DOUBLE_EQ(json["inequality"]["bound"], 10);
  EXPECT_NEAR(json["inequality"]["held"].get<double>(), 2.0 / 3, 1e-9);
  EXPECT_THAT(machine_text(log, std::nullopt), HasSubstr("lanes pay below 10.0"));
  EXPECT_THAT(machine_text(a_log(40), std::nullopt), Not(HasSubstr("inequality")));
}

TEST(MachineReport, CountsWhatPlansDidWithTokensOnTheHost) {
  EXPECT_EQ(machine_json(a_log(40), std::nullopt)["mode_changes"], 0);
  EXPECT_THAT(machine_text(a_log(40), std::nullopt), Not(HasSubstr("changes")));
  EXPECT_FALSE(machine_json(a_log(0), std::nullopt).contains("mode_changes")) << "one tier";
  ManualClock clock;
  BusySides sides;
  MachineLog log;
  log.begin(clock, sides, "overlap");
  log.on_gauges({.host_blocks = 10});
  observe::StepRecord step = step_of(clock.now(), 1);
  step.mode_changed = true;
  step.lane_moves = 3;
  step.let_in = 2;
  log.on_step(step);
  log.on_step(step);
  clock.advance(milliseconds(100));
  log.end();
  const auto json = machine_json(log, std::nullopt);
  EXPECT_EQ(json["mode_changes"], 2);
  EXPECT_EQ(json["lane_moves"], 6);
  EXPECT_EQ(json["let_in"], 4);
  EXPECT_THAT(machine_text(log, std::nullopt),
              HasSubstr("2 of mode, 6 of lane, 4 tokens begun although held"));
  const auto headlines = machine_headlines(log, std::nullopt);
  EXPECT_EQ(value_of(headlines, "mode_changes"), 2);
  EXPECT_EQ(value_of(headlines, "lane_moves"), 6);
  EXPECT_EQ(value_of(headlines, "let_in"), 4);
}

TEST(MachineReport, TwoTiersSayWhoWaitsForWhom) {
  const MachineLog log = a_log(40);
  const auto headlines = machine_headlines(log, std::nullopt);
  EXPECT_NEAR(value_of(headlines, "host_busy"), 0.4, 0.001);
  EXPECT_NEAR(value_of(headlines, "accelerator_bubble"), 0.1, 0.001);
  EXPECT_NEAR(value_of(headlines, "host_bubble"), 0.5, 0.001);
  EXPECT_NEAR(value_of(headlines, "offloaded_mean"), 8, 0.1);
  EXPECT_DOUBLE_EQ(value_of(headlines, "mode_resident"), 0.25);
  EXPECT_DOUBLE_EQ(value_of(headlines, "mode_piggyback"), 0.75);
  EXPECT_NEAR(value_of(headlines, "step_time_error"), 10.0 / 90, 1e-9);
  double limits = 0;
  for (const char* name : kLimitNames) {
    limits += value_of(headlines, std::string("limited_by_") + name);
  }
  EXPECT_NEAR(limits, 1, 0.06) << "the last look is half a second before the end";
  const auto json = machine_json(log, BestEffortRates{.prompt_tokens_per_s = 7});
  EXPECT_NEAR(json["busy"]["accelerator_idle_while_host_works"], 0.1, 0.001);
  EXPECT_EQ(json["steps_by_mode"]["piggyback"]["steps"], 75);
  EXPECT_NEAR(json["steps_by_mode"]["piggyback"]["median_accelerator_idle"], 0, 1e-9);
  EXPECT_EQ(json["steps_by_kind"]["mixed"]["steps"], 100);
  EXPECT_EQ(json["best_effort"]["prompt_tokens_per_s"], 7);
  EXPECT_EQ(json["offloaded"]["max"], 8);
  const std::string text = machine_text(log, std::nullopt);
  EXPECT_THAT(text, HasSubstr("accelerator idle while the host works 10.0 %"));
  EXPECT_THAT(text, HasSubstr("time of steps piggyback 75.0 %, resident 25.0 %"));
  EXPECT_THAT(text, HasSubstr("11.1 % off"));
}

TEST(MachineReport, OneTierHasNoHost) {
  const MachineLog log = a_log(0);
  const auto json = machine_json(log, std::nullopt);
  EXPECT_NEAR(json["busy"]["accelerator"], 0.8, 0.001);
  EXPECT_FALSE(json.contains("limited_by") || json.contains("steps_by_mode") ||
               json.contains("best_effort"));
  EXPECT_EQ(machine_headlines(log, std::nullopt).size(), 2U);
  EXPECT_THAT(machine_text(log, std::nullopt), Not(HasSubstr("host")));
  EXPECT_THAT(machine_cards(log).html, Not(HasSubstr("offloaded")));
}

TEST(MachineReport, CardsHaveAPlotForEachThingOverTime) {
  const loadgen::ReportPage page = machine_cards(a_log(40));
  EXPECT_EQ(page.plots.size(), 6U) << "prompts, decodes, sequences, memory, busy, predictions";
  for (const char* text : {"on the host", "host alone 10.0 %", "piggyback 75.0 %",
                           "The machine over time", "actual over predicted"}) {
    EXPECT_THAT(page.html, HasSubstr(text));
  }
  EXPECT_FALSE(std::regex_search(page.html, std::regex("nan|inf[^i]|src=|https?://")));
  EXPECT_TRUE(machine_cards(MachineLog()).html.empty());
}

TEST(MachineReport, BestEffortCountsWhatHasNotEnded) {
  loadgen::Load load;
  load.groups = {{.name = "chat", .service_tier = "priority"},
                 {.name = "bulk", .service_tier = "flex"}};
  loadgen::RunResult run;
  run.duration = seconds(10);
  run.records = {{.group = 0, .planned_input_tokens = 500, .chunk_times = {seconds(1)}},
                 {.group = 1, .planned_input_tokens = 70, .chunk_times = {seconds(1), seconds(2)}},
                 {.group = 1, .planned_input_tokens = 900, .chunk_times = {}}};
  const auto rates = best_effort_rates(load, run);
  ASSERT_TRUE(rates.has_value());
  EXPECT_DOUBLE_EQ(rates->prompt_tokens_per_s, 7);
  EXPECT_DOUBLE_EQ(rates->output_tokens_per_s, 0.2);
  load.groups[1].service_tier = "";
  EXPECT_FALSE(best_effort_rates(load, run).has_value());
}

}  // namespace
}  // namespace tandem::sim
