#include "node/record_lines.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "node/replay_comparer.h"
#include "scheduler/fill_binder.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr int32_t kLastStage = 8;

SystemView view_of(int64_t host_blocks) {
  SystemView view;
  view.now = Nanos{5};
  view.step = 3;
  view.budget = {.tokens = 8, .logit_rows = 4, .sequences = 2, .free_blocks = 7};
  view.budget.host_total_blocks = host_blocks;
  return view;
}

StepPlan lanes() {
  StepPlan plan;
  plan.mode = StepMode::kLanes;
  plan.first_lane = {SequenceId{4}, SequenceId{6}};
  plan.hold = {SequenceId{9}};
  return plan;
}

// A bind of two stages behind one launched group.
struct Bind {
  std::vector<int32_t> ready = {3, 1};
  std::vector<int32_t> coming = {0, 2};
  std::vector<int32_t> credits = {2, 2};
  std::vector<LaunchedGroup> launched = {{0, 4}};
  BindView view{.now = Nanos{1000},
                .step = 3,
                .first_stage = 4,
                .last_stage = kLastStage,
                .resident_rows = 5,
                .row_room = 20,
                .logit_room = 6,
                .ready = ready,
                .coming = coming,
                .credits = credits,
                .launched = launched,
                .oldest_runs = Nanos{70}};
};

std::string result_with_binds(const BindDecision& decision) {
  const Bind bind;
  std::string entries;
  append_bind(entries, bind.view, decision);
  append_bind(entries, bind.view, decision);
  return result_line({.step = 3, .samples = {}, .scored = {}, .visitors = {}},
                     {.measured = Nanos{9}}, entries);
}

// What a replay says of a recorded result whose step it did in the same way.
std::string difference_of_result(const std::string& line) {
  ReplayComparer comparer(std::make_unique<FillBinder>(), kLastStage, kViewDigestVersion);
  const json recorded = json::parse(line);
  const Status asked = comparer.expect_binds(recorded);
  EXPECT_TRUE(asked.ok()) << asked.error().message;
  comparer.result({.step = 3, .samples = {}, .scored = {}, .visitors = {}}, {.measured = Nanos{9}});
  return comparer.difference({recorded});
}

std::string difference_of_plan(json recorded, const StepPlan& now) {
  ReplayComparer comparer(std::make_unique<FillBinder>(), kLastStage, kViewDigestVersion);
  comparer.plan(view_of(10), now);
  return comparer.difference({std::move(recorded)});
}

TEST(RecordLines, DigestsOfEarlierRecordsAreMadeAgain) {
  EXPECT_EQ(plan_line(view_of(0), {}, 1),
            R"({"plan":3,"now":5,"view":"609975614ae32362","preempt":[],"admit":[],"slices":[]})");
}

TEST(RecordLines, ADigestTellsTiersApart) {
  std::vector<SequenceView> parked(1);
  SystemView view = view_of(10);
  view.offloaded = parked;
  const auto both = [&](const auto& change) {
    const uint64_t old_before = view_digest(view, 1);
    const uint64_t before = view_digest(view, kViewDigestVersion);
    change();
    EXPECT_EQ(view_digest(view, 1), old_before);
    EXPECT_NE(view_digest(view, kViewDigestVersion), before);
  };
  both([&] { parked.front().tier = Tier::kHost; });
  both([&] { parked.front().transfer_blocks = 3; });
  both([&] { parked.front().first_token = Nanos{4}; });
  both([&] { view.ready = 2; });
}

TEST(RecordLines, WhatWasCountedOfAStepComesBack) {
  StepResult result;
  result.step = 3;
  result.second = {.visits = 24, .stages = 4, .logits = 6};
  result.held = Nanos{1500};
  result.visits = 40;
  result.host = {.busy = Nanos{70}, .rows = 5, .context = 600};
  const std::string line = result_line(result, {}, {});
  RecordedCounts counts;
  ASSERT_TRUE(read_counted(json::parse(line), counts).ok());
  EXPECT_EQ(counts.visits, 40);
  EXPECT_EQ(counts.second.visits, 24);
  EXPECT_EQ(counts.second.stages, 4);
  EXPECT_EQ(counts.second.logits, 6);
  EXPECT_EQ(counts.held, Nanos{1500});
  EXPECT_EQ(counts.host, result.host);
}

TEST(RecordLines, EarlierRecordsCountNoSecondLane) {
  RecordedCounts counts{.visits = 7, .second = {.visits = 3}, .held = Nanos{2}, .host = {}};
  ASSERT_TRUE(read_counted(json::parse(R"({"result":3,"ns":9,"visits":12})"), counts).ok());
  EXPECT_EQ(counts.visits, 12);
  EXPECT_EQ(counts.second.visits, 0);
  EXPECT_EQ(counts.held, Nanos{0});
  EXPECT_EQ(result_line({.step = 3, .samples = {}, .scored = {}, .visitors = {}}, {}, {}),
            R"({"result":3,"ns":0,"tokens":[]})")
      << "and one tier has none";
}

TEST(RecordLines, ForgedCountsAreRefused) {
  RecordedCounts counts;
  for (const char* line :
       {R"({"second_lane":[1,2]})", R"({"second_lane":[1,2,3,4]})", R"({"second_lane":[1,-2,3]})",
        R"({"second_lane":[1,4294967296,3]})", R"({"second_lane":7})", R"({"held_ns":-1})",
        R"({"host":[1,"2",3]})", R"({"visits":-3})"}) {
    EXPECT_FALSE(read_counted(json::parse(line), counts).ok()) << line;
  }
}

TEST(RecordLines, ModesAreOfTwoTiers) {
  EXPECT_FALSE(json::parse(plan_line(view_of(0), {}, 2)).contains("mode"));
  EXPECT_EQ(json::parse(plan_line(view_of(10), {}, 2))["mode"], "groups");
  const json line = json::parse(plan_line(view_of(10), lanes(), 2));
  EXPECT_EQ(line["mode"], "lanes");
  EXPECT_EQ(line["first_lane"], json::parse("[4,6]"));
  EXPECT_EQ(line["hold"], json::parse("[9]"));
}

TEST(RecordLines, StagesAreOfPoliciesThatReadThem) {
  std::vector<SequenceView> parked(3);
  SystemView view = view_of(10);
  view.offloaded = parked;
  const uint64_t before = view_digest(view, kViewDigestVersion);
  EXPECT_FALSE(json::parse(plan_line(view, {}, 2)).contains("stages"));
  parked[0].id = SequenceId{7};
  parked[1] = {.id = SequenceId{8}, .stage = 0};
  parked[2] = {.id = SequenceId{12}, .stage = 5};
  const json line = json::parse(plan_line(view, {.second_lane = {SequenceId{7}}}, 2));
  EXPECT_EQ(line["stages"], json::parse("[[8,0],[12,5]]"));
  EXPECT_EQ(line["second_lane"], json::parse("[7]"));
  EXPECT_FALSE(line.contains("lane_moves") || line.contains("let_in")) << "as in older records";
  const StepPlan moving{.lane_moves = {{.sequence = SequenceId{8}, .lane = 1},
                                       {.sequence = SequenceId{12}, .lane = 0}},
                        .let_in = {SequenceId{7}}};
  const json moves = json::parse(plan_line(view, moving, 2));
  EXPECT_EQ(moves["lane_moves"], json::parse("[[8,1],[12,0]]"));
  EXPECT_EQ(moves["let_in"], json::parse("[7]"));
  const uint64_t shown = view_digest(view, kViewDigestVersion);
  EXPECT_NE(shown, before);
  parked[2].stage = 6;
  EXPECT_NE(view_digest(view, kViewDigestVersion), shown);
  const Result<RecordedStages> read = read_stages(line, 5);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, (RecordedStages{{SequenceId{8}, 0}, {SequenceId{12}, 5}}));
  EXPECT_FALSE(read_stages(line, 4).ok()) << "the model has no stage 5";
  EXPECT_FALSE(read_stages(json::parse(R"({"stages":[[-1,2]]})"), 4).ok());
  EXPECT_THROW(static_cast<void>(read_stages(json::parse(R"({"stages":[3]})"), 4)),
               json::exception);
  EXPECT_TRUE(read_stages(json::parse("{}"), 4)->empty());
}

TEST(RecordLines, TheLaneOfABindIsReadAgain) {
  const Bind bind;
  BindView view = bind.view;
  const std::vector<int32_t> one = {1};
  view.mode = StepMode::kLanes;
  view.lane = 1;
  view.ready = view.coming = view.credits = one;
  std::string entries;
  append_bind(entries, view, {.visitors = {1}});
  RecordedBind read;
  const Status status = read_bind(json::parse(entries), 3, kLastStage, read);
  ASSERT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(read.view.lane, 1);
  std::string again;
  append_bind(again, read.view, {.visitors = {1}});
  EXPECT_EQ(again, entries);
}

TEST(RecordLines, ABindIsReadAsItWasShown) {
  const Bind bind;
  std::string entries;
  append_bind(entries, bind.view, {.visitors = {2, 0}});
  RecordedBind read;
  const Status status = read_bind(json::parse(entries), 3, kLastStage, read);
  ASSERT_TRUE(status.ok()) << status.error().message;
  std::string again;
  append_bind(again, read.view, {.visitors = {2, 0}});
  EXPECT_EQ(again, entries);
  EXPECT_EQ(read.view.launched.front().end_stage, 4);
}

TEST(RecordLines, ForgedBindsAreRefused) {
  const Bind bind;
  std::string entries;
  append_bind(entries, bind.view, {.visitors = {2, 0}});
  const json good = json::parse(entries);
  json last_stage = good;
  last_stage["credits"] = {2, INT32_MAX};  // no hop begins there
  RecordedBind last_read;
  EXPECT_TRUE(read_bind(last_stage, 3, kLastStage, last_read).ok());
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, json>>{{"now", -1},
                                                 {"now", 1.5},
                                                 {"stage", 9},
                                                 {"stage", 8},
                                                 {"rows", json::parse("5000000000")},
                                                 {"ready", json::array()},
                                                 {"ready", json::array({-1, 0})},
                                                 {"ready", json::array({0.5, 0})},
                                                 {"ready", json::array({1e300, 0})},
                                                 {"coming", json::array({1})},
                                                 {"credits", json::array({1, 2, 3})},
                                                 {"launched", json::parse("[[4,4]]")},
                                                 {"launched", json::parse("[[0,5]]")},
                                                 {"launched", json::parse("[[0,3.5]]")},
                                                 {"launched", json::parse("[[-1e300,4]]")},
                                                 {"launched", json::parse("[[2,4],[0,2]]")},
                                                 {"oldest_runs", -5},
                                                 {"lanes", true}}) {
    json forged = good;
    forged[key] = value;
    forged["held"] = 0;
    RecordedBind read;
    EXPECT_FALSE(read_bind(forged, 3, kLastStage, read).ok()) << key << " " << value;
  }
}

TEST(RecordLines, ADifferentModeOrLaneIsNamed) {
  const json recorded = json::parse(plan_line(view_of(10), lanes(), kViewDigestVersion));
  EXPECT_EQ(difference_of_plan(recorded, lanes()), "");
  StepPlan other = lanes();
  other.mode = StepMode::kGroups;
  EXPECT_NE(difference_of_plan(recorded, other).find("the plan of step 3: 'first_lane' differs"),
            std::string::npos);
  json groups = recorded;
  groups["mode"] = "groups";
  EXPECT_NE(difference_of_plan(groups, lanes())
                .find(R"(the plan of step 3: 'mode' differs: recorded "groups", now "lanes")"),
            std::string::npos);
  other = lanes();
  other.first_lane.pop_back();
  EXPECT_NE(
      difference_of_plan(recorded, other).find("'first_lane' differs: recorded [4,6], now [4]"),
      std::string::npos);
}

TEST(RecordLines, ADifferentBindIsNamed) {
  EXPECT_EQ(difference_of_result(result_with_binds({.visitors = {2, 0}})), "");
  const std::string other = difference_of_result(result_with_binds({.visitors = {1, 0}}));
  EXPECT_NE(other.find("the result of step 3: bind 0 differs in 'visitors'"), std::string::npos)
      << other;
}

TEST(RecordLines, WhatEarlierRecordsLackIsNotCompared) {
  json plan = json::parse(plan_line(view_of(10), lanes(), kViewDigestVersion));
  plan.erase("mode");
  plan.erase("first_lane");
  EXPECT_EQ(difference_of_plan(plan, lanes()), "");
  plan.erase("slices");
  EXPECT_NE(difference_of_plan(plan, lanes()), "");
  json result = json::parse(result_with_binds({.visitors = {1, 0}}));
  result.erase("binds");
  EXPECT_EQ(difference_of_result(result.dump()), "");
}

TEST(RecordLines, BindsNeedTwoTiers) {
  ReplayComparer comparer(nullptr, kLastStage, kViewDigestVersion);
  EXPECT_FALSE(comparer.expect_binds(json::parse(result_with_binds({.visitors = {2, 0}}))).ok());
}

}  // namespace
}  // namespace tandem
