// A whole node with a small made model: planned, loaded, running, recorded, replayed.
#include "node/node.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>

#include "exec/code_digest.h"
#include "model/make.h"
#include "node/replay.h"
#include "scheduler/policies/sarathi.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Waits for the ends of requests.
class Ends final : public TokenSink {
 public:
  void deliver(std::vector<TokenEvent> events) override {
    const std::lock_guard lock(mutex_);
    for (const TokenEvent& event : events) {
      tokens_ += event.kind == TokenEvent::Kind::kToken ? 1 : 0;
      ended_ += event.kind == TokenEvent::Kind::kFinish ? 1 : 0;
    }
    wake_.notify_all();
  }
  void wait_for(int count) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return ended_ >= count; });
  }
  int tokens() {
    const std::lock_guard lock(mutex_);
    return tokens_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  int tokens_ = 0;
  int ended_ = 0;
};

class NodeTest : public ::testing::Test {
 protected:
  NodeTest() {
    std::string pattern = (fs::temp_directory_path() / "tandem_node_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    model::MakeOptions make;
    make.config = model::preset_config("tiny").value();
    make.config.layers = 2;
    make.config.hidden = 96;
    make.config.intermediate = 200;
    make.config.vocabulary = 700;
    const Status made = model::make_model(make, folder_ / "small");
    CHECK(made.ok(), "{}", made.error().message);
    options_.model = folder_ / "small";
    options_.served_names = {"small", "also-small"};
    options_.policy = "accel_only";
    options_.device.threads = 2;
    options_.device.isa = kernels::Choice(kernels::Isa::kRef);
    options_.max_num_seqs = 4;
    options_.max_num_batched_tokens = 32;
    options_.max_model_len = 64;
    options_.memory_bytes = int64_t{64} << 20;
    options_.record_out = record().string();
  }
  ~NodeTest() override { fs::remove_all(folder_); }

  [[nodiscard]] fs::path record() const { return folder_ / "record.jsonl"; }
  [[nodiscard]] std::string recorded() const {
    std::stringstream text;
    text << std::ifstream(record()).rdbuf();
    return text.str();
  }
  Request request() {
    Request request;
    request.prompt = {5, 6, 7, 8, 9};
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = 6;
    request.sink = ends_;
    return request;
  }
  void run_three(Instance& instance) {
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(instance.frontend().submit(request()).ok());
    }
    ends_->wait_for(3);
    EXPECT_EQ(ends_->tokens(), 18);
  }
  [[nodiscard]] Result<ReplayReport> replay_it() const {
    NodeOptions options;
    options.model = options_.model;
    options.device.threads = 2;
    return replay(record(), options, clock_, nullptr);
  }

  fs::path folder_;
  NodeOptions options_;
  const SteadyClock clock_;
  std::shared_ptr<Ends> ends_ = std::make_shared<Ends>();
};

TEST_F(NodeTest, AnInstanceIsPlannedThenLoadedThenRuns) {
  {
    auto node = Node::open(options_, clock_);
    ASSERT_TRUE(node.ok()) << node.error().message;
    ASSERT_EQ((*node)->instances().size(), 1U);
    Instance& instance = *(*node)->instances().front();
    EXPECT_EQ(instance.frontend().state(), ServingState::kLoading);
    EXPECT_EQ(instance.frontend().model().names, options_.served_names);
    EXPECT_EQ(instance.frontend().model().max_model_len, 64);
    EXPECT_EQ(instance.frontend().submit(request()).error().code, ErrorCode::kUnavailable);
    EXPECT_NE(instance.config_json().find("\"policy\":\"accel_only\""), std::string::npos);
    EXPECT_TRUE(fs::exists(record())) << "nothing is to be measured first";
    const Status loaded = (*node)->load({}, {});
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(instance.frontend().state(), ServingState::kReady);
    run_three(instance);
    EXPECT_NE((*node)->metrics_text().find("tandem_"), std::string::npos);
    (*node)->drain();
    EXPECT_EQ(instance.frontend().submit(request()).error().code, ErrorCode::kUnavailable);
  }
  const auto report = replay_it();
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->first_difference, "");
  EXPECT_EQ(report->requests, 3);
  EXPECT_EQ(report->tokens, 18);
  EXPECT_FALSE(report->other_build);
  std::string text = recorded();
  const std::string build = fmt::format("\"build\":\"{}\"", kCodeDigest);
  ASSERT_NE(text.find(build), std::string::npos);
  text.replace(text.find(build), build.size(), "\"build\":\"another\"");
  std::ofstream(record()) << text;
  const auto another = replay_it();
  ASSERT_TRUE(another.ok()) << another.error().message;
  EXPECT_EQ(another->first_difference, "");
  EXPECT_TRUE(another->other_build);
}

TEST_F(NodeTest, AMeasuredBudgetIsRecordedWithWhatFollowedFromIt) {
  options_.policy = "sarathi";
  options_.policy_options[kSarathiTokenBudget] = 0;
  {
    auto node = Node::open(options_, clock_);
    ASSERT_TRUE(node.ok()) << node.error().message;
    EXPECT_FALSE(fs::exists(record())) << "what the policy knows is not known yet";
    ASSERT_TRUE((*node)->load({}, {}).ok());
    Instance& instance = *(*node)->instances().front();
    EXPECT_EQ(nlohmann::json::parse(instance.config_json())["sarathi_token_budget"], 32);
    run_three(instance);
  }
  const auto report = replay_it();
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->first_difference, "");
  // A replay measures nothing: a record without the budget is refused.
  std::string text = recorded();
  const std::string budget = "\"sarathi_token_budget\":32";
  ASSERT_NE(text.find(budget), std::string::npos);
  text.replace(text.find(budget), budget.size(), "\"sarathi_token_budget\":0");
  std::ofstream(record()) << text;
  EXPECT_FALSE(replay_it().ok());
}

TEST_F(NodeTest, AModelThatCannotBeLoadedLeavesItsFrontEndFailed) {
  auto node = Node::open(options_, clock_);
  ASSERT_TRUE(node.ok()) << node.error().message;
  for (const auto& entry : fs::directory_iterator(options_.model)) {
    if (entry.path().extension() == ".safetensors") {
      fs::resize_file(entry.path(), 100);
    }
  }
  EXPECT_FALSE((*node)->load({}, {}).ok());
  EXPECT_EQ((*node)->instances().front()->frontend().state(), ServingState::kFailed);
}

TEST_F(NodeTest, WrongOptionsOfAPolicyAreSaidBeforeTheModelIsLoaded) {
  options_.policy = "sarathi";
  options_.policy_options[kSarathiTokenBudget] = -1;
  EXPECT_EQ(Node::open(options_, clock_).error().param, "sarathi-token-budget");
  options_.policy = "none";
  EXPECT_EQ(Node::open(options_, clock_).error().param, "policy");
}

}  // namespace
}  // namespace tandem
