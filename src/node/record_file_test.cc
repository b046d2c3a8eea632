#include "node/record_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "node/replay.h"
#include "node/request_json.h"

namespace tandem {
namespace {

class RecordFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("tandem-record-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_ / name).string();
  }

  std::filesystem::path folder_;
};

TEST_F(RecordFileTest, ACheckFindsWhatCreationWouldRefuseAndMakesNothing) {
  EXPECT_TRUE(RecordFile::check(path("new")).ok());
  EXPECT_FALSE(std::filesystem::exists(path("new")));
  std::ofstream(path("old")) << "x";
  std::filesystem::create_symlink(path("absent"), path("link"));
  for (const char* name : {"old", "link", "absent/new", "old/new"}) {
    const Status checked = RecordFile::check(path(name));
    const auto created = RecordFile::create(path(name), 1 << 20, "{}");
    ASSERT_FALSE(checked.ok() || created.ok()) << name;
    EXPECT_EQ(checked.error().message, created.error().message);
  }
}

TEST_F(RecordFileTest, ARequestSurvivesTheWayToTheFileAndBack) {
  Request request;
  request.prompt = {1, 2, 3};
  request.n = 2;
  request.tenant = "t";
  request.service_class = ServiceClass::kBestEffort;
  request.level = -3;
  request.slo = {.ttft = *parse_ttft_rule("500ms+2ms/tok,max=8s"),
                 .tpot = std::chrono::milliseconds(50)};
  request.sampling.temperature = 0.7F;
  request.sampling.top_p = 0.9F;
  request.sampling.logit_bias = {{5, -1.25F}};
  request.sampling.stop_token_ids = {7};
  nlohmann::json json = nlohmann::json::parse(request_to_json(request).dump());
  json["seed"] = 42;
  const auto back = request_from_json(json);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->prompt, request.prompt);
  EXPECT_EQ(back->sampling.temperature, 0.7F);
  EXPECT_EQ(back->sampling.top_p, 0.9F);
  EXPECT_EQ(back->sampling.logit_bias[0].bias, -1.25F);
  EXPECT_EQ(back->sampling.seed, 42U);
  EXPECT_EQ(back->service_class, request.service_class);
  EXPECT_EQ(back->level, -3);
  EXPECT_EQ(back->slo, request.slo);
  request.slo.ttft = TtftRule{.base = std::chrono::seconds(1)};  // without a cap
  request.slo.tpot.reset();
  json = nlohmann::json::parse(request_to_json(request).dump());
  json["seed"] = 42;
  EXPECT_EQ(request_from_json(json)->slo, request.slo);
}

TEST_F(RecordFileTest, BrokenArrivalsAreRefused) {
  EXPECT_FALSE(request_from_json(nlohmann::json::object()).ok());
  nlohmann::json json = request_to_json(Request{});
  json["seed"] = 1;
  EXPECT_FALSE(request_from_json(json).ok());  // no prompt
  json["prompt"] = "text";
  EXPECT_FALSE(request_from_json(json).ok());
  json["prompt"] = nlohmann::json::array({1});
  EXPECT_TRUE(request_from_json(json).ok());
  for (const auto& [key, value] : std::vector<std::pair<std::string, nlohmann::json>>{
           {"prompt", nlohmann::json::array({-1})},
           {"prompt", nlohmann::json::array({5000000000})},
           {"n", 4294967297},
           {"n", 1.5},
           {"max_tokens", 0},
           {"seed", 7e20},
           {"seed", -1},
           {"temperature", 1e300},
           {"logit_bias", nlohmann::json::array({1})},
           {"ttft_ns", 5},
           {"ttft_ns", nlohmann::json::array({1, 2})},
           {"ttft_ns", nlohmann::json::array({-1, 0, 1})},
           {"ttft_ns", nlohmann::json::array({1, 0, 0})},
           {"tpot_ns", 0},
           {"tpot_ns", 1.5},
           {"tpot_ns", "50ms"},
           {"stop_token_ids", nlohmann::json::array({"a"})}}) {
    nlohmann::json broken = json;
    broken[key] = value;
    EXPECT_FALSE(request_from_json(broken).ok()) << key << " " << value;
  }
}

TEST_F(RecordFileTest, AnExistingFileIsNotOverwritten) {
  std::ofstream(path("r")) << "mine";
  const auto file = RecordFile::create(path("r"), 1000, "{}");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().param, "record-out");
}

TEST_F(RecordFileTest, TheLimitEndsTheRecordWithALineThatSaysSo) {
  {
    auto file = std::move(RecordFile::create(path("r"), 300, "{}")).value();
    for (int i = 0; i < 100; ++i) {
      file->cancel(i, RequestId{i});
    }
  }
  EXPECT_LT(std::filesystem::file_size(path("r")), 400U);
  std::ifstream in(path("r"));
  std::string line;
  std::string last;
  while (std::getline(in, line)) {
    last = line;
  }
  EXPECT_EQ(last, R"({"end":"the size limit"})");
}

TEST_F(RecordFileTest, ReplayRefusesWhatIsNoRecord) {
  NodeOptions options;
  EXPECT_EQ(replay(path("absent"), options, SteadyClock(), {}).error().code, ErrorCode::kNotFound);
  std::ofstream(path("r")) << "{\"hello\":1}\n";
  EXPECT_FALSE(replay(path("r"), options, SteadyClock(), {}).ok());
  std::ofstream(path("t"))
      << R"({"tandem_record":1,"config":{"policy":"sarathi","sarathi_token_budget":1e30,)"
      << R"("dtype":"float32","kv_cache_dtype":"float32"}})"
      << "\n";
  EXPECT_NE(
      replay(path("t"), options, SteadyClock(), {}).error().message.find("sarathi_token_budget"),
      std::string::npos);
  std::ofstream(path("s")) << R"({"tandem_record":1,"config":{"policy":3}})"
                           << "\n";
  EXPECT_NE(replay(path("s"), options, SteadyClock(), {}).error().message.find("configuration"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem
