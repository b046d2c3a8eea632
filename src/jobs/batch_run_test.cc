#include "jobs/batch_run.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "openai/batch_line.h"
#include "openai/test_support.h"

namespace tandem::jobs {
namespace {

namespace fs = std::filesystem;
using openai::Json;

// Answers each request with "ok" in the call that submits it.
class InstantFrontend final : public Frontend {
 public:
  [[nodiscard]] const ServedModel& model() const override { return model_; }
  [[nodiscard]] ServingState state() const override { return ServingState::kReady; }
  [[nodiscard]] FrontendLoad load() const override { return {}; }
  Submission submit(Request request) override {
    if (refuse_ && refuse_(submitted_ + 1)) {
      return *refuse_(submitted_ + 1);
    }
    ++submitted_;
    ttft_targets_.push_back(request.slo.ttft ? request.slo.ttft->target(1) : Nanos::max());
    best_effort_ += request.service_class == ServiceClass::kBestEffort ? 1 : 0;
    const auto id = static_cast<RequestId>(submitted_);
    if (silent_) return id;
    for (int32_t choice = 0; choice < request.n; ++choice) {
      openai::deliver_answer(id, request, "ok", choice);
    }
    return id;
  }
  void cancel(RequestId) override { ++cancelled_; }
  void stop(RequestId, int32_t) override {}

  ServedModel model_ = openai::tiny_model();
  std::function<std::optional<Error>(int64_t)> refuse_;  // by which submission it would be
  bool silent_ = false;
  int64_t submitted_ = 0;
  int64_t best_effort_ = 0;  // of these
  std::vector<Nanos> ttft_targets_;
  int64_t cancelled_ = 0;
};

class BatchRun : public ::testing::Test {
 protected:
  BatchRun() {
    std::string pattern = (fs::temp_directory_path() / "tandem_batch_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~BatchRun() override { fs::remove_all(folder_); }

  static std::string line(std::string_view custom_id, std::string_view prompt = "hi") {
    return Json({{"custom_id", custom_id},
                 {"method", "POST"},
                 {"url", "/v1/completions"},
                 {"body", {{"model", "tiny"}, {"prompt", prompt}, {"max_tokens", 2}}}})
               .dump() +
           "\n";
  }
  void write(const std::string& text) const { std::ofstream(in()) << text; }
  [[nodiscard]] fs::path in() const { return folder_ / "in.jsonl"; }
  [[nodiscard]] fs::path out() const { return folder_ / "out.jsonl"; }
  [[nodiscard]] std::string output() const {
    std::stringstream text;
    text << std::ifstream(out()).rdbuf();
    return text.str();
  }
  [[nodiscard]] std::vector<Json> answers() const {
    std::vector<Json> lines;
    std::istringstream text(output());
    for (std::string one; std::getline(text, one);) lines.push_back(Json::parse(one));
    return lines;
  }
  Result<BatchProgress> run(int64_t max_line_bytes = 1 << 20) {
    return run(models_, max_line_bytes);
  }
  Result<BatchProgress> run(const openai::ModelDirectory& models,
                            int64_t max_line_bytes = 1 << 20) {
    ASSIGN_OR_RETURN(BatchInput input, BatchInput::open(in(), max_line_bytes));
    ASSIGN_OR_RETURN(BatchOutput written, BatchOutput::open(out()));
    ASSIGN_OR_RETURN(const BatchProgress start, inspect_batch(input, written.written()));
    return run_batch(input, written, start, models, clock_, options_);
  }

  fs::path folder_;
  openai::TestModel model_;
  InstantFrontend frontend_;
  const openai::ModelDirectory models_ = model_.served_by(frontend_);
  BatchRunOptions options_;
  const SteadyClock clock_;
};

TEST_F(BatchRun, EveryLineGetsOneAnswerWithItsCustomId) {
  write(line("a") + "\n  \r\n" + line("b"));
  const auto progress = run();
  ASSERT_TRUE(progress.ok()) << progress.error().message;
  EXPECT_EQ(progress->total, 2);
  EXPECT_EQ(progress->done, 2);
  EXPECT_EQ(progress->failed, 0);
  EXPECT_EQ(progress->output_tokens, 4);
  const std::vector<Json> lines = answers();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["custom_id"], "a");
  EXPECT_EQ(lines[0]["response"]["status_code"], 200);
  EXPECT_EQ(lines[0]["response"]["body"]["choices"][0]["text"], "ok");
  EXPECT_EQ(lines[1]["custom_id"], "b");
}

TEST_F(BatchRun, EveryLineIsBestEffortWhateverItAsksForAndItsAnswerSaysSo) {
  write(line("a") +
        R"({"custom_id":"b","method":"POST","url":"/v1/completions",)"
        R"("body":{"model":"tiny","prompt":"x","max_tokens":2,"service_tier":"priority"}})" +
        "\n");
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(frontend_.best_effort_, 2);
  const std::vector<Json> lines = answers();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["response"]["body"]["service_tier"], "flex");
  EXPECT_EQ(lines[1]["response"]["body"]["service_tier"], "flex");
}

TEST_F(BatchRun, EachLineIsAnsweredByTheModelThatItNames) {
  InstantFrontend large;
  large.model_.names = {"large"};
  const openai::ModelDirectory both({{.frontend = frontend_,
                                      .tokenizer = model_.tokenizer,
                                      .chat_template = model_.chat_template,
                                      .defaults = {}},
                                     {.frontend = large,
                                      .tokenizer = model_.tokenizer,
                                      .chat_template = model_.chat_template,
                                      .defaults = {}}},
                                    {}, {});
  std::string other = line("b");
  other.replace(other.find("tiny"), 4, "large");
  std::string unknown = line("c");
  unknown.replace(unknown.find("tiny"), 4, "huge");
  write(line("a") + other + unknown + line("d"));
  const auto progress = run(both);
  ASSERT_TRUE(progress.ok()) << progress.error().message;
  EXPECT_EQ(progress->done, 4);
  EXPECT_EQ(progress->failed, 1);
  EXPECT_EQ(frontend_.submitted_, 2);
  EXPECT_EQ(large.submitted_, 1);
  EXPECT_NE(output().find("this server has 'tiny', 'small', 'large'"), std::string::npos);
}

TEST_F(BatchRun, ABadLineIsItsOwnErrorAndTheOthersGoOn) {
  write("nonsense\n" + line("a") + line("a") + line("long", std::string(100, 'x')) +
        R"({"custom_id":"m","url":"/v1/completions","body":{"model":"other","prompt":"x"}})" +
        "\n" + line("z"));
  const auto progress = run();
  ASSERT_TRUE(progress.ok()) << progress.error().message;
  EXPECT_EQ(progress->done, 6);
  EXPECT_EQ(progress->failed, 4);
  std::map<std::string, Json> by_number;
  for (const Json& answer : answers()) {
    by_number[answer["id"].get<std::string>().substr(0, 11)] = answer;
  }
  EXPECT_EQ(by_number["batch_req_1"]["error"]["code"], "invalid_json");
  EXPECT_TRUE(by_number["batch_req_1"]["response"].is_null());
  EXPECT_EQ(by_number["batch_req_2"]["response"]["status_code"], 200);
  EXPECT_EQ(by_number["batch_req_3"]["error"]["code"], "duplicate_custom_id");
  EXPECT_EQ(by_number["batch_req_4"]["response"]["status_code"], 400);
  EXPECT_EQ(by_number["batch_req_4"]["response"]["body"]["error"]["code"],
            "context_length_exceeded");
  EXPECT_EQ(by_number["batch_req_5"]["response"]["status_code"], 404);
  EXPECT_EQ(by_number["batch_req_6"]["response"]["status_code"], 200);
}

TEST_F(BatchRun, ASecondRunAnswersOnlyWhatIsOpen) {
  write(line("a") + line("b") + line("a") + line("c"));
  ASSERT_TRUE(run().ok());
  const std::string whole = output();
  // Lose the last two answers, the last of them in the middle.
  const size_t third = whole.find('\n', whole.find('\n') + 1) + 1;
  for (const size_t cut : {third, third + 5, whole.size() - 1, size_t{7}, size_t{0}}) {
    fs::resize_file(out(), cut);
    frontend_.submitted_ = 0;
    const auto progress = run();
    ASSERT_TRUE(progress.ok()) << progress.error().message;
    EXPECT_EQ(progress->before + progress->done, 4) << cut;
    std::set<std::string> ids;
    for (const Json& answer : answers()) ids.insert(answer["id"]);
    EXPECT_EQ(ids.size(), 4U) << cut;
    EXPECT_EQ(answers().size(), 4U) << cut;
    EXPECT_LE(frontend_.submitted_, 3);
    // The first line with the id is the good one, whatever was answered first.
    for (const Json& answer : answers()) {
      if (answer["id"].get<std::string>().starts_with("batch_req_3_")) {
        EXPECT_EQ(answer["error"]["code"], "duplicate_custom_id");
      } else {
        EXPECT_EQ(answer["response"]["status_code"], 200);
      }
    }
  }
}

TEST_F(BatchRun, AForeignOrForeignersOutputIsLeftUntouched) {
  write(line("a") + line("b"));
  for (const std::string& text : {std::string("my notes\n"), std::string("my notes"), line("a")}) {
    std::ofstream(out(), std::ios::trunc) << text;
    const auto progress = run();
    ASSERT_FALSE(progress.ok());
    EXPECT_EQ(progress.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(output(), text);
  }
  fs::remove(out());
  ASSERT_TRUE(run().ok());
  const std::string answered = output();
  write(line("a") + line("changed"));
  EXPECT_NE(run().error().message.find("changed"), std::string::npos);
  write(line("a"));
  EXPECT_FALSE(run().ok());
  EXPECT_EQ(output(), answered);
}

TEST_F(BatchRun, TwoRunsCannotShareAnOutput) {
  write(line("a"));
  const auto first = BatchOutput::open(out());
  ASSERT_TRUE(first.ok());
  EXPECT_NE(run().error().message.find("another run"), std::string::npos);
}

TEST_F(BatchRun, AFullQueueIsWaitedFor) {
  write(line("a") + line("b") + line("c"));
  int64_t refusals = 0;
  frontend_.refuse_ = [&](int64_t) -> std::optional<Error> {
    if (++refusals % 3 == 0) return std::nullopt;
    return Error{ErrorCode::kOverloaded, "full", ""};
  };
  options_.wake_every = std::chrono::milliseconds(1);
  const auto progress = run();
  ASSERT_TRUE(progress.ok());
  EXPECT_EQ(progress->done, 3);
  EXPECT_EQ(answers().size(), 3U);
}

TEST_F(BatchRun, AnEngineThatTakesNothingEndsTheRunWithWhatWasAnswered) {
  write(line("a") + line("b"));
  LineOrder order({.max_sequences_ahead = 1, .make_order = {}});
  options_.order = &order;
  frontend_.refuse_ = [](int64_t n) -> std::optional<Error> {
    if (n == 1) return std::nullopt;
    return Error{ErrorCode::kUnavailable, "the engine failed", ""};
  };
  const auto progress = run();
  ASSERT_FALSE(progress.ok());
  EXPECT_EQ(answers().size(), 1U);
}

TEST_F(BatchRun, TheDeadlineIsTheTargetOfLinesWithoutAnEarlierOne) {
  const std::string hurried = Json({{"custom_id", "b"},
                                    {"url", "/v1/completions"},
                                    {"body", {{"prompt", "x"}, {"slo", {{"ttft", "5s"}}}}}})
                                  .dump();
  write(line("a") + hurried + "\n");
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(frontend_.ttft_targets_, (std::vector<Nanos>{Nanos::max(), std::chrono::seconds(5)}));
  for (const auto& [left, first, second] :
       {std::tuple(Nanos(std::chrono::hours(1)), Nanos(std::chrono::hours(1)),
                   Nanos(std::chrono::seconds(5))),
        std::tuple(Nanos(std::chrono::hours(100)), kLongestTarget, Nanos(std::chrono::seconds(5))),
        std::tuple(Nanos(std::chrono::hours(-1)), kShortestTarget, kShortestTarget)}) {
    fs::remove(out());
    frontend_.ttft_targets_.clear();
    options_.deadline = clock_.now() + left;
    ASSERT_TRUE(run().ok());
    ASSERT_EQ(frontend_.ttft_targets_.size(), 2U);
    EXPECT_LE(frontend_.ttft_targets_[0], first);
    EXPECT_GT(frontend_.ttft_targets_[0], first - std::chrono::minutes(5));
    EXPECT_EQ(frontend_.ttft_targets_[1], second);
  }
}

TEST_F(BatchRun, TheEndOfTheWindowIsNoShorterTargetThanTheKeyMayClaim) {
  write(line("a"));
  options_.deadline = clock_.now() - std::chrono::hours(1);
  options_.grant.least_ttft = TtftRule{.base = std::chrono::seconds(10)};
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(frontend_.ttft_targets_, (std::vector<Nanos>{std::chrono::seconds(10)}));
}

TEST_F(BatchRun, AnAnswerThatGrowsTooLargeIsThatLinesError) {
  write(line("a") + line("b"));
  options_.max_answer_bytes = 1;  // "ok" has two
  const auto progress = run();
  ASSERT_TRUE(progress.ok()) << progress.error().message;
  EXPECT_EQ(progress->failed, 2);
  EXPECT_EQ(frontend_.cancelled_, 2);
  const std::vector<Json> lines = answers();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["error"]["code"], "answer_too_large");
  fs::remove(out());
  std::atomic<int64_t> kept{1'000'000};  // by another run
  options_ = {};
  options_.max_kept_bytes = 100;
  options_.kept_bytes = &kept;
  EXPECT_EQ(run()->failed, 0) << "a small answer has room at all times";
  EXPECT_EQ(kept, 1'000'000);
}

TEST_F(BatchRun, ALineOfMorePromptsThanTheQueueTakesIsAnErrorAtOnce) {
  const Json prompts = {{"custom_id", "many"},
                        {"url", "/v1/completions"},
                        {"body", {{"prompt", {"a", "b", "c"}}, {"max_tokens", 2}}}};
  write(prompts.dump() + "\n" + line("a"));
  options_.max_prompts = 2;
  const auto progress = run();
  ASSERT_TRUE(progress.ok()) << progress.error().message;
  EXPECT_EQ(progress->failed, 1);
  EXPECT_EQ(frontend_.submitted_, 1);
  EXPECT_NE(output().find("--max-queue-flex"), std::string::npos);
  fs::remove(out());
  options_.max_prompts = 3;
  EXPECT_EQ(run()->failed, 0);
}

TEST_F(BatchRun, ALineOfManySequencesWaitsForThoseBeforeItAndThenGoesAlone) {
  const Json wide = {{"custom_id", "wide"},
                     {"url", "/v1/completions"},
                     {"body", {{"prompt", {"a", "b", "c"}}, {"max_tokens", 2}}}};
  frontend_.silent_ = true;
  int64_t looks = 0;
  options_.should_stop = [&] { return ++looks > 3; };
  LineOrder order({.max_sequences_ahead = 2, .make_order = {}});
  options_.order = &order;
  write(line("a") + wide.dump() + "\n");
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(frontend_.submitted_, 1);
  looks = 0;
  write(wide.dump() + "\n" + line("a"));
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(frontend_.submitted_, 4);
}

TEST_F(BatchRun, AskedToStopItCancelsAndWritesNothingHalf) {
  write(line("a") + line("b"));
  frontend_.silent_ = true;
  int64_t looks = 0;
  options_.should_stop = [&] { return ++looks > 2; };
  options_.wake_every = std::chrono::milliseconds(1);
  const auto progress = run();
  ASSERT_TRUE(progress.ok());
  EXPECT_TRUE(progress->stopped);
  EXPECT_EQ(frontend_.cancelled_, 2);
  EXPECT_EQ(output(), "");
}

TEST_F(BatchRun, LinesBeyondTheLimitAreSkippedWithoutHoldingThem) {
  write(line("a") + std::string(3 << 20, 'x') + "\n" + line("b") + std::string(2000, 'y'));
  const auto progress = run(1000);
  ASSERT_TRUE(progress.ok()) << progress.error().message;
  EXPECT_EQ(progress->total, 4);
  EXPECT_EQ(progress->failed, 2);
  int too_long = 0;
  for (const Json& answer : answers()) {
    too_long += answer["error"].is_object() && answer["error"]["code"] == "line_too_long" ? 1 : 0;
  }
  EXPECT_EQ(too_long, 2);
}

TEST_F(BatchRun, ALineThatWasTooLongIsAskedOnceTheLimitIsRaisedAndItsAnswerDeleted) {
  const std::string longer = line("long", std::string(1 << 20, ' '));
  write(line("a") + std::string(1 << 20, ' ') + "\n" + longer + line("b"));
  ASSERT_TRUE(run(1000).ok());
  ASSERT_EQ(answers().size(), 3U) << "a long blank line is blank";
  const auto unchanged = run(4 << 20);
  ASSERT_TRUE(unchanged.ok()) << unchanged.error().message;
  EXPECT_EQ(unchanged->done, 0);
  std::string kept;
  for (const Json& answer : answers()) {
    kept += answer["error"].is_object() ? "" : answer.dump() + "\n";
  }
  std::ofstream(out(), std::ios::trunc) << kept;
  const auto raised = run(4 << 20);
  ASSERT_TRUE(raised.ok()) << raised.error().message;
  EXPECT_EQ(raised->done, 1);
  EXPECT_EQ(answers().back()["custom_id"], "long");
}

TEST_F(BatchRun, TheSameLineHasTheSameHashWhateverTheLimit) {
  write("\xEF\xBB\xBF" + line("a") + line("b", std::string(3 << 20, 'x')) + "no end of line");
  std::vector<uint64_t> hashes[2];
  for (const int64_t limit : {4, 8 << 20}) {
    auto input = BatchInput::open(in(), limit);
    ASSERT_TRUE(input.ok());
    for (auto one = input->next(); one.ok() && *one; one = input->next()) {
      hashes[limit == 4 ? 0 : 1].push_back((*one)->hash);
      EXPECT_EQ((*one)->too_long, limit == 4);
      EXPECT_EQ((*one)->text.empty(), limit == 4);
    }
  }
  ASSERT_EQ(hashes[0].size(), 3U);
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(hashes[1][2], openai::hash_of_line("no end of line"));
}

TEST_F(BatchRun, SeveralPromptsAndChoicesShareOneAnswer) {
  write(
      R"({"custom_id":"a","url":"/v1/completions","body":{"prompt":["x","y"],"n":2,"max_tokens":2}})");
  const auto progress = run();
  ASSERT_TRUE(progress.ok());
  ASSERT_EQ(answers().size(), 1U);
  EXPECT_EQ(answers()[0]["response"]["body"]["choices"].size(), 4U);
}

TEST_F(BatchRun, OnlyRegularFilesAreRead) {
  EXPECT_FALSE(BatchInput::open(folder_, 100).ok());
  EXPECT_FALSE(BatchInput::open(folder_ / "none", 100).ok());
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(BatchInput::open(folder_ / "pipe", 100).ok());
  EXPECT_FALSE(BatchOutput::open(folder_ / "pipe").ok());
  EXPECT_FALSE(BatchOutput::open(folder_).ok());
  EXPECT_FALSE(BatchOutput::open(folder_ / "no" / "such").ok());
}

}  // namespace
}  // namespace tandem::jobs
