// The order of batches, and the fate of batches that cannot run.
#include "batches/runner.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "batches/database.h"
#include "batches/test_support.h"

namespace tandem::batches {
namespace {

using openai::Json;

class RunnerTest : public ::testing::Test {
 protected:
  void SetUp() override { restart(); }
  TestService& restart(int64_t unix_seconds = 1'000'000, const BatchOptions* options = nullptr) {
    kit_.reset();
    kit_ = std::make_unique<TestService>(root_.path());
    if (options != nullptr) {
      kit_->options = *options;
    }
    const Status opened = kit_->open(unix_seconds);
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    return *kit_;
  }
  std::string begin(std::string_view text, std::string_view owner = "me",
                    std::string_view window = "24h") {
    const Result<FileObject> file = kit_->upload(text, owner);
    EXPECT_TRUE(file.ok()) << file.error().message;
    return kit_->begin(file->id, window, owner);
  }
  // Owners' tenants are their names.
  static RunnerOptions by_owner() {
    return {.sequences_ahead = 512, .max_prompts = {}, .terms_of = [](const std::string& owner) {
              return std::optional(OwnerTerms{.grant = {}, .tenant = owner});
            }};
  }
  int64_t held_of(std::string_view owner) {
    return kit_->frontend.count_held(
        [owner](const Request& request) { return request.tenant == owner; });
  }
  bool until(const std::function<bool()>& holds) {
    for (int i = 0; i < 2000 && !holds(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return holds();
  }
  [[nodiscard]] std::filesystem::path data() const { return root_.path() / "data"; }
  void run_sql(const std::string& sql) const {
    const Result<Database> database = Database::open(data() / "tandem.db");
    const Status ran = database->run(sql);
    ASSERT_TRUE(ran.ok()) << ran.error().message;
  }

  TestFolder root_;
  std::unique_ptr<TestService> kit_;
};

TEST_F(RunnerTest, AnOwnerWithAllThreadsMakesRoomForAnotherAndHoldsUpNoShortStep) {
  kit_->frontend.holds = true;
  kit_->start(by_owner());
  std::vector<std::string> mine;
  for (int i = 0; i < 5; ++i) {
    mine.push_back(begin(line_of("a") + line_of("b")));
  }
  ASSERT_TRUE(until([&] { return held_of("me") == 8; })) << "four of five are answered";
  kit_->wait_for(mine[4], "in_progress");
  ASSERT_TRUE(kit_->service->cancel_batch("me", mine[4]).ok());
  kit_->wait_for(mine[4], "cancelled");
  const std::string expiring = begin(line_of("a"), "me", "1h");
  kit_->wait_for(expiring, "in_progress");
  begin(line_of("a"), "you");
  EXPECT_TRUE(until([&] { return held_of("you") == 1; }));
  EXPECT_EQ(kit_->frontend.cancelled, 2) << "the lines of one batch";
  kit_->clock.advance(std::chrono::minutes(61));
  kit_->wait_for(expiring, "expired");
}

TEST_F(RunnerTest, ABatchMakesRoomAfterItsTurnForAnotherOwner) {
  BatchOptions options = kit_->options;
  options.batches_at_once = 1;
  restart(1'000'000, &options);
  kit_->frontend.holds = true;
  kit_->start(by_owner());
  begin(line_of("a"), "me", "1h");
  ASSERT_TRUE(until([&] { return held_of("me") == 1; }));
  const std::string other = begin(line_of("a"), "me", "1h");
  const std::string yours = begin(line_of("a"), "you");
  kit_->wait(
      yours, [](const Json& batch) { return batch["status"] == "in_progress"; }, "you");
  EXPECT_EQ(held_of("you"), 0);
  kit_->clock.advance(std::chrono::minutes(2));
  EXPECT_TRUE(until([&] { return held_of("you") == 1; }));
  EXPECT_EQ(held_of("me"), 1) << "another batch of the same owner has to wait";
}

TEST_F(RunnerTest, ARequestToStopEndsLinesAndLeavesBatchesAsTheyAre) {
  kit_->frontend.holds = true;
  kit_->start();
  const std::string id = begin(line_of("a"));
  ASSERT_TRUE(until([&] { return kit_->frontend.submitted == 1; }));
  kit_->service->request_stop();
  EXPECT_TRUE(until([&] { return kit_->frontend.cancelled == 1; }));
  EXPECT_EQ(kit_->batch(id)["status"], "in_progress");
  EXPECT_TRUE(kit_->batch(id)["tandem"]["paused"].is_null());
  restart().start();
  kit_->wait_for(id, "completed");
}

TEST_F(RunnerTest, BatchesThatCannotRunAreNotPreferred) {
  BatchOptions options = kit_->options;
  options.batches_at_once = 1;
  restart(1'000'000, &options);
  std::vector<std::string> gone;
  for (int i = 0; i < 3; ++i) {
    gone.push_back(begin(line_of("a"), "gone", "1h"));
  }
  const std::string id = begin(line_of("a"));
  kit_->start({.sequences_ahead = 512, .max_prompts = {}, .terms_of = [](const std::string& owner) {
                 return owner == "gone" ? std::nullopt : std::optional(OwnerTerms());
               }});
  kit_->wait_for(id, "completed");
  EXPECT_TRUE(until([&] { return kit_->metric("tandem_batches_paused") == "3"; }));
  EXPECT_TRUE(kit_->batch(gone[0], "gone")["tandem"]["paused"].is_string());
  kit_->service->stop();
}

TEST_F(RunnerTest, DamagedAnswersAreAskedAgain) {
  const std::string id = begin(line_of("a") + line_of("b"));
  std::ofstream(data() / "batches" / id / "work") << std::string(4096, '\0');
  kit_->start();
  EXPECT_EQ(kit_->wait_for(id, "completed")["request_counts"]["completed"], 2);
}

TEST_F(RunnerTest, ABatchWhoseFilesCannotBeReadFailsWhenItsWindowEnds) {
  const std::string id = begin(line_of("a"));
  std::filesystem::remove(data() / "batches" / id / "input");
  kit_->start();
  kit_->wait(id, [](const Json& batch) { return batch["tandem"]["paused"].is_string(); });
  kit_->clock.advance(std::chrono::hours(25));
  const Json batch = kit_->wait_for(id, "failed");
  EXPECT_EQ(batch["errors"]["data"][0]["code"], "files_unreadable");
  EXPECT_EQ(batch.dump().find(root_.path().string()), std::string::npos);
}

TEST_F(RunnerTest, ABatchWhoseWindowEndsBeforeItIsCheckedExpires) {
  const std::string id = begin(line_of("a") + "no json\n", "me", "1h");
  restart(1'000'000 + 2 * 3600).start();
  const Json batch = kit_->wait_for(id, "expired");
  EXPECT_EQ(batch["request_counts"], Json({{"total", 2}, {"completed", 0}, {"failed", 2}}));
}

TEST_F(RunnerTest, TheReserveOfTheDiskIsLeftAlone) {
  const std::string id = begin(line_of("a"));
  BatchOptions options = kit_->options;
  options.min_free_bytes = int64_t{1} << 60;
  restart(1'000'000, &options).start();
  const Json paused =
      kit_->wait(id, [](const Json& batch) { return batch["tandem"]["paused"].is_string(); });
  EXPECT_NE(paused["tandem"]["paused"].get<std::string>().find("disk"), std::string::npos);
  EXPECT_EQ(kit_->upload("text").error().code, ErrorCode::kResourceExhausted);
  kit_->clock.advance(std::chrono::hours(25));
  kit_->wait_for(id, "finalizing");
  kit_->wait(id, [](const Json& batch) { return batch["tandem"]["paused"].is_string(); });
  options.min_free_bytes = 0;
  restart(1'000'000 + 25 * 3600, &options).start();
  kit_->wait_for(id, "expired");
}

TEST_F(RunnerTest, AnswersOfBatchesThatDoNotRunTakeSpaceAfterARestart) {
  kit_->frontend.answers_until = 1;
  kit_->start();
  const std::string input = line_of("a") + line_of("b");
  const std::string id = begin(input);
  kit_->wait(id, [](const Json& batch) { return batch["request_counts"]["completed"] == 1; });
  restart();
  const auto work = std::filesystem::file_size(data() / "batches" / id / "work");
  EXPECT_GT(work, 0U);
  EXPECT_EQ(kit_->metric("tandem_batch_storage_used_bytes"), std::to_string(input.size() + work));
}

TEST_F(RunnerTest, ABatchWaitsForTheModelForWhichItWasChecked) {
  kit_->frontend.answers_until = 0;
  kit_->start();
  const std::string id = begin(line_of("a"));
  kit_->wait_for(id, "in_progress");
  kit_.reset();
  run_sql("UPDATE batches SET models = replace(models, 'tiny', 'large') WHERE models <> '[]'");
  restart().start();
  const Json paused =
      kit_->wait(id, [](const Json& batch) { return batch["tandem"]["paused"].is_string(); });
  EXPECT_NE(paused["tandem"]["paused"].get<std::string>().find("'large'"), std::string::npos);
  kit_.reset();
  run_sql("UPDATE batches SET models = replace(models, 'large', 'tiny')");
  restart().start();
  EXPECT_EQ(kit_->wait_for(id, "completed")["request_counts"]["completed"], 1);
}

TEST_F(RunnerTest, ALimitThatWasLoweredDoesNotCountForLinesThatWereChecked) {
  kit_->frontend.answers_until = 0;
  kit_->start();
  const std::string id = begin(line_of("a"));
  kit_->wait_for(id, "in_progress");
  BatchOptions options = kit_->options;
  options.line_bytes = 10;
  restart(1'000'000, &options).start();
  EXPECT_EQ(kit_->wait_for(id, "completed")["request_counts"]["completed"], 1);
}

TEST_F(RunnerTest, AKeyMayHaveSoManyUploads) {
  BatchOptions options = kit_->options;
  options.files_of_key = 2;
  restart(1'000'000, &options);
  const Result<FileObject> first = kit_->upload("x");
  ASSERT_TRUE(kit_->upload("x").ok());
  const Result<FileObject> third = kit_->upload("x");
  EXPECT_EQ(third.error().code, ErrorCode::kOverloaded);
  EXPECT_NE(third.error().message.find("delete files"), std::string::npos);
  EXPECT_TRUE(kit_->upload("x", "you").ok());
  ASSERT_TRUE(kit_->service->delete_file("me", first->id).ok());
  EXPECT_TRUE(kit_->upload("x").ok());
}

TEST_F(RunnerTest, MessagesHoldLittleOfWhatAClientSent) {
  const std::string longer(2000, 'x');
  EXPECT_LT(kit_->service->file("me", longer).error().message.size(), 200U);
  EXPECT_LT(kit_->service->batches("me", "after=" + longer).error().message.size(), 200U);
  const Json window = {
      {"endpoint", "/v1/completions"}, {"input_file_id", "file-1"}, {"completion_window", longer}};
  EXPECT_LT(kit_->service->create_batch("me", window.dump()).error().message.size(), 200U);
  EXPECT_EQ(shown("caf\xC3\xA9\xFF"), "caf\xC3\xA9\xEF\xBF\xBD");
  EXPECT_EQ(first_chars("caf\xC3\xA9", 4), "caf");
}

}  // namespace
}  // namespace tandem::batches
