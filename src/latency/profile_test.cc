#include "latency/profile.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "latency/profiler.h"
#include "latency/test_machine.h"

namespace tandem::latency {
namespace {

using nlohmann::json;

ProfileIdentity identity() {
  return {.model = "made",
          .model_digest = "0123456789abcdef",
          .device = "cpu (amx, 2 threads)",
          .cpu = "A CPU \"quoted\"",
          .isa = "amx",
          .threads = 2,
          .dtype = "bfloat16",
          .kv_dtype = "bfloat16",
          .build = "fedcba9876543210"};
}

Profile made_profile() {
  ManualClock clock;
  TestMachine meter({}, clock);
  Measured measured =
      measure_steps(meter, {.layers = 4, .first_stage_share = 0.1}, short_profile(), clock, {})
          .value();
  Profile profile;
  profile.identity = identity();
  profile.date = "2026-01-02T03:04:05Z";
  profile.batches = measured.batches;
  profile.most_rows = measured.most_rows;
  profile.limits = {.rows = 512, .sequences = 64, .context = 1024};
  profile.modular = measured.modular;
  profile.regression = measured.regression;
  profile.table = measured.table;
  profile.accuracy.modular = measured.modular_accuracy;
  profile.host = HostTimes{
      .attention = {.per_context_nanos = 3, .per_row_nanos = 100, .fixed_nanos = 5000},
      .to_host = {.alpha_nanos = 1500, .beta_nanos = 0.1},
      .from_host = {.alpha_nanos = 1600, .beta_nanos = 0.2},
      .launch = {.per_group_nanos = 9000, .per_visit_nanos = 70, .per_lane_stage_nanos = 3000},
      .busy = {.per_context_nanos = 2, .per_row_nanos = 40},
      .hop = {.to_host = 3072, .from_host = 1024}};
  return profile;
}

const Profile& profile() {
  static const Profile made = made_profile();
  return made;
}

// The profile's text with one thing changed.
std::string changed(const std::function<void(json&)>& change) {
  json text = json::parse(profile_text(profile()));
  change(text);
  return text.dump();
}

void expect_refused(const std::string& text, const std::string& naming) {
  const Result<Profile> read = parse_profile(text);
  ASSERT_FALSE(read.ok()) << naming;
  EXPECT_NE(read.error().message.find(naming), std::string::npos) << read.error().message;
}

TEST(ProfileFile, ComesBackAsItWasWritten) {
  const Result<Profile> back = parse_profile(profile_text(profile()));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(profile_text(*back), profile_text(profile()));
  EXPECT_EQ(back->modular.dense.points(), profile().modular.dense.points());
  EXPECT_EQ(back->host->to_host.beta_nanos, 0.1);
  EXPECT_EQ(back->host->launch.per_visit_nanos, 70);
  EXPECT_EQ(back->host->launch.per_lane_stage_nanos, 3000);
  EXPECT_EQ(back->host->busy.per_row_nanos, 40);
  EXPECT_EQ(back->host->hop.to_host, 3072);
  EXPECT_TRUE(check_fits(*back, identity()).ok());
}

TEST(ProfileFile, KeepsTheChoicesOfADevice) {
  EXPECT_EQ(profile_text(profile()).find("choices"), std::string::npos) << "it has none";
  Profile tuned = profile();
  tuned.choices = {{.work = "a product", .way = "ab12", .choice = 3, .us = 1.25, .usual_us = 2},
                   {.work = "another", .us = 7}};
  const Result<Profile> back = parse_profile(profile_text(tuned));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->choices, tuned.choices);
  const auto wrong = [&](const char* field, const json& value) {
    json text = json::parse(profile_text(tuned));
    text["choices"][1][field] = value;
    return text.dump();
  };
  expect_refused(wrong("work", std::string(5000, 'x')), "choices[1].work");
  expect_refused(wrong("way", 7), "choices[1].way");
  expect_refused(wrong("choice", 65), "choices[1].choice");
  expect_refused(wrong("choice", -1), "choices[1].choice");
  expect_refused(wrong("us", "soon"), "choices[1].us");
  expect_refused(wrong("usual_us", nullptr), "choices[1].usual_us");
  expect_refused(changed([](json& p) { p["choices"] = 3; }), "choices must be a list");
  expect_refused(changed([](json& p) { p["choices"] = {3}; }), "choices[0] must be an object");
}

TEST(ProfileFile, AllItsModelsCanBeMade) {
  StepShape shape;
  shape.add_decode(100);
  for (const TimeModel which : {TimeModel::kModular, TimeModel::kRegression, TimeModel::kTable}) {
    const auto model = make_time_model(profile(), which);
    ASSERT_TRUE(model.ok());
    EXPECT_EQ((*model)->name(), time_model_name(which));
    EXPECT_GT((*model)->step_time(shape), std::chrono::milliseconds(1));
  }
}

TEST(ProfileFile, OfSmallStepsDoesNotCoverAServerWithLargeOnes) {
  Profile own = profile();
  EXPECT_TRUE(check_covers(own, {.rows = 2048, .sequences = 256}).ok());
  const Status rows = check_covers(own, {.rows = 2052, .sequences = 64});
  ASSERT_FALSE(rows.ok());
  EXPECT_NE(rows.error().message.find("512 rows, and this server's may have 2052"),
            std::string::npos)
      << rows.error().message;
  EXPECT_FALSE(check_covers(own, {.rows = 512, .sequences = 260}).ok());
  own.most_rows = 64;  // asked for 512, but the time sufficed for 64
  EXPECT_TRUE(check_covers(own, {.rows = 2048, .sequences = 256}).ok());
}

TEST(ProfileFile, WithoutLimitsCoversWhatWasMeasured) {
  const Result<Profile> back = parse_profile(changed([](json& p) {
    p.erase("limits");
    p["most_rows"] = 16;
  }));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_TRUE(check_covers(*back, {.rows = 64, .sequences = 1000}).ok());
  EXPECT_FALSE(check_covers(*back, {.rows = 2048, .sequences = 256}).ok());
}

TEST(ProfileFile, OneTierHasNoHost) {
  const Result<Profile> back = parse_profile(changed([](json& p) { p["host"] = nullptr; }));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_FALSE(back->host.has_value());
}

TEST(ProfileFile, OfAnEarlierBuildKnowsLessOfTheHost) {
  const Result<Profile> back = parse_profile(changed([](json& p) {
    p["host"].erase("busy");
    p["host"].erase("hop_bytes");
    p["host"]["launch"].erase("per_lane_stage");
  }));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->host->busy.nanos(10, 1000), 0);
  EXPECT_EQ(back->host->link_time(10), Nanos{0});
  EXPECT_EQ(back->host->launch.per_lane_stage_nanos, 9000.0 / 4) << "of groups of four stages";
}

TEST(ProfileFile, OfOneTierDoesNotServePoliciesThatPlanByTheHost) {
  Profile own = profile();
  EXPECT_TRUE(check_has_host(own).ok());
  own.host.reset();
  ASSERT_FALSE(check_has_host(own).ok());
  EXPECT_NE(check_has_host(own).error().message.find("measured on one tier"), std::string::npos);
}

TEST(ProfileFile, RefusesWhatIsNoProfile) {
  expect_refused("", "not a profile");
  expect_refused("[]", "not a profile");
  expect_refused("{}", "not a profile");
  expect_refused("{\"tandem_profile\": 1", "not a profile");
  expect_refused(changed([](json& p) { p["tandem_profile"] = 2; }), "version is 2");
  expect_refused(std::string(size_t{5} << 20, ' '), "more than any profile");
}

TEST(ProfileFile, NamesTheFieldThatIsWrong) {
  expect_refused(changed([](json& p) { p.erase("modular"); }), "modular is missing");
  expect_refused(changed([](json& p) { p["modular"] = 3; }), "modular must be an object");
  expect_refused(changed([](json& p) { p["modular"].erase("dense"); }), "modular.dense");
  expect_refused(changed([](json& p) { p["modular"]["dense"] = json::array(); }), "modular.dense");
  expect_refused(changed([](json& p) { p["modular"]["dense"][0] = "x"; }), "modular.dense");
  expect_refused(changed([](json& p) { p["modular"]["dense"][0] = {1}; }), "modular.dense");
  expect_refused(changed([](json& p) { p["modular"]["prefill"]["per_pair"] = "much"; }),
                 "modular.prefill.per_pair");
  expect_refused(changed([](json& p) { p["table"]["decode"][0]["sequences"] = 0; }),
                 "table.decode[0].sequences");
  expect_refused(changed([](json& p) { p["identity"]["cpu"] = std::string(5000, 'x'); }),
                 "identity.cpu");
  expect_refused(changed([](json& p) { p["identity"]["threads"] = 1.5; }), "identity.threads");
}

TEST(ProfileFile, RefusesTimesThatCannotBe) {
  expect_refused(changed([](json& p) { p["modular"]["decode"]["per_context"] = -1; }),
                 "decode.per_context");
  expect_refused(changed([](json& p) { p["modular"]["decode"]["per_context"] = 1e300; }),
                 "decode.per_context");
  expect_refused(changed([](json& p) { p["modular"]["decode"]["per_context"] = nullptr; }),
                 "decode.per_context");
  expect_refused(changed([](json& p) { p["modular"]["dense"][1][1] = 0; }), "more must not be");
  expect_refused(changed([](json& p) { p["modular"]["dense"][1][0] = 1; }), "modular.dense");
  expect_refused(changed([](json& p) { p["modular"]["dense"][0][0] = -4; }), "modular.dense");
  expect_refused(changed([](json& p) { p["modular"]["dense"].back()[1] = 1e200; }), "dense");
  expect_refused(changed([](json& p) { p["modular"]["layers"] = 0; }), "layers");
  expect_refused(changed([](json& p) { p["table"]["layers"] = 7; }), "number of layers");
  expect_refused(changed([](json& p) { p["regression"]["fixed"] = -5; }), "regression: fixed");
  expect_refused(changed([](json& p) { p["host"]["to_host"]["beta"] = -5; }), "host.to_host.beta");
  expect_refused(changed([](json& p) { p["host"]["launch"]["per_group"] = -1; }),
                 "host.launch.per_group");
  expect_refused(changed([](json& p) { p["host"].erase("launch"); }), "host.launch is missing");
  // NaN and infinity are not JSON.
  std::string text = profile_text(profile());
  text.replace(text.find("\"fixed\": "), 10, "\"fixed\": NaN");
  expect_refused(text, "not a profile");
}

TEST(ProfileFile, IsRefusedWhereItDoesNotFit) {
  const auto expect_misfit = [](const std::function<void(ProfileIdentity&)>& change,
                                const std::string& naming) {
    ProfileIdentity other = identity();
    change(other);
    const Status fits = check_fits(profile(), other);
    ASSERT_FALSE(fits.ok()) << naming;
    EXPECT_NE(fits.error().message.find(naming), std::string::npos) << fits.error().message;
    EXPECT_NE(fits.error().message.find("tandem profile"), std::string::npos);
    EXPECT_NE(identity_digest(other), identity_digest(identity()));
  };
  expect_misfit([](ProfileIdentity& i) { i.model_digest = "other"; }, "model 'made'");
  expect_misfit([](ProfileIdentity& i) { i.cpu = "Another"; }, "CPU");
  expect_misfit([](ProfileIdentity& i) { i.isa = "avx2"; }, "instruction set 'amx'");
  expect_misfit([](ProfileIdentity& i) { i.threads = 64; }, "threads '2', but this is '64'");
  expect_misfit([](ProfileIdentity& i) { i.dtype = "float32"; }, "element type");
  expect_misfit([](ProfileIdentity& i) { i.kv_dtype = "float32"; }, "KV element type");
  ProfileIdentity renamed = identity();
  renamed.model = "the same under another name";
  EXPECT_TRUE(check_fits(profile(), renamed).ok());
}

TEST(ProfileFile, OfAnotherBuildFitsAndIsKnown) {
  EXPECT_TRUE(check_is_of_build(profile(), identity()).ok());
  ProfileIdentity other = identity();
  other.build = "0011223344556677";
  EXPECT_TRUE(check_fits(profile(), other).ok());
  EXPECT_EQ(identity_digest(other), identity_digest(identity())) << "it takes the old one's place";
  const Status same = check_is_of_build(profile(), other);
  ASSERT_FALSE(same.ok());
  EXPECT_NE(same.error().message.find("another build"), std::string::npos) << same.error().message;
  const Result<Profile> earlier =
      parse_profile(changed([](json& p) { p["identity"].erase("build"); }));
  ASSERT_TRUE(earlier.ok()) << earlier.error().message;
  EXPECT_FALSE(check_is_of_build(*earlier, identity()).ok());
  expect_refused(changed([](json& p) { p["identity"]["build"] = 7; }), "identity.build");
}

TEST(ProfileFile, IsWrittenWholeAndMakesItsFolder) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("tandem_profile_" + std::to_string(::getpid()));
  const std::filesystem::path path = folder / "a" / "profile.json";
  ASSERT_TRUE(write_profile(profile(), path).ok());
  ASSERT_TRUE(write_profile(profile(), path).ok()) << "over the old one";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "a"), {}), 1);
  const Result<Profile> back = read_profile(path);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(profile_text(*back), profile_text(profile()));
  std::ofstream(path, std::ios::trunc) << "{}";
  EXPECT_NE(read_profile(path).error().message.find(path.string()), std::string::npos);
  EXPECT_FALSE(read_profile(folder / "none.json").ok());
  EXPECT_FALSE(write_profile(profile(), path / "below" / "a.json").ok()) << "a file is no folder";
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tandem::latency
