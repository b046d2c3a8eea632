#include "batches/service.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "batches/test_support.h"

namespace tandem::batches {
namespace {

using openai::Json;

class ServiceTest : public ::testing::Test {
 protected:
  void SetUp() override { restart(); }
  // As after a kill: what the folder holds is all that is known.
  TestService& restart(int64_t unix_seconds = 1'000'000) {
    kit_.reset();
    kit_ = std::make_unique<TestService>(root_.path());
    const Status opened = kit_->open(unix_seconds);
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    return *kit_;
  }
  std::string file(std::string_view text) {
    const Result<FileObject> file = kit_->upload(text);
    EXPECT_TRUE(file.ok()) << file.error().message;
    return file->id;
  }

  TestFolder root_;
  std::unique_ptr<TestService> kit_;
};

TEST_F(ServiceTest, ABatchEndsInAFileOfAnswersAndOneOfErrors) {
  kit_->start();
  const std::string bad =
      R"({"custom_id":"b","url":"/v1/completions","body":{"prompt":"x","temperature":-1}})";
  const Json batch =
      kit_->wait_for(kit_->begin(file(line_of("a") + bad + "\n" + line_of("c"))), "completed");
  EXPECT_EQ(batch["request_counts"], Json({{"total", 3}, {"completed", 2}, {"failed", 1}}));
  const std::vector<Json> answers = kit_->lines(batch["output_file_id"]);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0]["response"]["body"]["choices"][0]["text"], "ok");
  const std::vector<Json> errors = kit_->lines(batch["error_file_id"]);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0]["custom_id"], "b");
  EXPECT_EQ(errors[0]["response"]["status_code"], 400);
  // It goes after the state is told.
  const std::filesystem::path folder = root_.path() / "data" / "batches";
  for (int i = 0; i < 1000 && !std::filesystem::is_empty(folder); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST_F(ServiceTest, WithoutItsDatabaseNothingInAFolderIsTouched) {
  const std::string id = file(line_of("a"));
  kit_.reset();
  const std::filesystem::path data = root_.path() / "data";
  std::ofstream(data / "files" / "notes.txt") << "mine";
  for (const char* name : {"tandem.db", "tandem.db-wal", "tandem.db-shm"}) {
    std::filesystem::remove(data / name);
  }
  const Result<DataFolder> folder = DataFolder::open(data);
  ASSERT_TRUE(folder.ok()) << folder.error().message;
  const auto store = Store::open(*folder);
  ASSERT_FALSE(store.ok());
  EXPECT_NE(store.error().message.find("no database beside it"), std::string::npos)
      << store.error().message;
  EXPECT_TRUE(std::filesystem::exists(data / "files" / id));
  std::filesystem::remove(data / "files" / id);
  EXPECT_TRUE(Store::open(*folder).ok());
  EXPECT_TRUE(std::filesystem::exists(data / "files" / "notes.txt"));
}

TEST_F(ServiceTest, AnotherProcessGoesOnWithTheLinesThatHaveNoAnswer) {
  kit_->frontend.answers_until = 2;
  kit_->start();
  const std::string id = kit_->begin(file(line_of("a") + line_of("b") + line_of("c")));
  kit_->wait(id, [](const Json& batch) { return batch["request_counts"]["completed"] == 2; });
  kit_->service->stop();
  EXPECT_EQ(kit_->batch(id)["status"], "in_progress");
  restart().start();
  const Json batch = kit_->wait_for(id, "completed");
  EXPECT_EQ(kit_->frontend.submitted, 1);
  EXPECT_EQ(batch["request_counts"]["completed"], 3);
  EXPECT_EQ(kit_->lines(batch["output_file_id"]).size(), 3U);
}

TEST_F(ServiceTest, ACancelledBatchKeepsItsAnswersAndStopsTheOthers) {
  kit_->frontend.answers_until = 1;
  kit_->start();
  const std::string id = kit_->begin(file(line_of("a") + line_of("b")));
  kit_->wait(id, [](const Json& batch) { return batch["request_counts"]["completed"] == 1; });
  ASSERT_TRUE(kit_->service->cancel_batch("me", id).ok());
  const Json batch = kit_->wait_for(id, "cancelled");
  EXPECT_EQ(batch["request_counts"], Json({{"total", 2}, {"completed", 1}, {"failed", 0}}));
  EXPECT_EQ(kit_->lines(batch["output_file_id"]).size(), 1U);
  EXPECT_TRUE(batch["error_file_id"].is_null());
  EXPECT_EQ(kit_->frontend.cancelled, 1);
  EXPECT_TRUE(kit_->service->cancel_batch("me", id).ok());  // once more changes nothing
}

TEST_F(ServiceTest, ACancellationGoesOnInAnotherProcess) {
  const std::string id = kit_->begin(file(line_of("a")));  // no thread works on it yet
  ASSERT_TRUE(kit_->service->cancel_batch("me", id).ok());
  restart().start();
  const Json batch = kit_->wait_for(id, "cancelled");
  EXPECT_EQ(batch["request_counts"]["total"], 1);
  EXPECT_TRUE(batch["output_file_id"].is_null());
  EXPECT_EQ(kit_->frontend.submitted, 0);
}

TEST_F(ServiceTest, ABatchWhoseWindowEndsHasErrorsForTheRest) {
  kit_->frontend.answers_until = 1;
  kit_->start();
  const std::string id = kit_->begin(file(line_of("a") + line_of("b")), "1h");
  kit_->wait(id, [](const Json& batch) { return batch["request_counts"]["completed"] == 1; });
  kit_->clock.advance(std::chrono::hours(2));
  const Json batch = kit_->wait_for(id, "expired");
  EXPECT_EQ(batch["request_counts"], Json({{"total", 2}, {"completed", 1}, {"failed", 1}}));
  const std::vector<Json> errors = kit_->lines(batch["error_file_id"]);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0]["custom_id"], "b");
  EXPECT_EQ(errors[0]["error"]["code"], "batch_expired");
}

TEST_F(ServiceTest, ABatchThatWaitsSaysWhyAndItsWindowEndsAllTheSame) {
  kit_->frontend.state_ = ServingState::kLoading;
  kit_->start();
  const std::string id = kit_->begin(file(line_of("a")), "1h");
  kit_->wait(id, [](const Json& batch) { return batch["tandem"]["paused"].is_string(); });
  EXPECT_NE(kit_->service->metrics_text().find("tandem_batches{state=\"in_progress\"} 1"),
            std::string::npos);
  kit_->clock.advance(std::chrono::hours(2));
  EXPECT_EQ(kit_->wait_for(id, "expired")["request_counts"]["failed"], 1);
}

TEST_F(ServiceTest, ABatchOfAKeyThatIsGoneWaitsForIt) {
  std::atomic<bool> known = false;
  kit_->start({.max_prompts = {},
               .terms_of = [&known](const std::string& owner) -> std::optional<OwnerTerms> {
                 return known && owner == "me"
                            ? std::optional(OwnerTerms{.grant = {}, .tenant = "mine"})
                            : std::nullopt;
               }});
  const std::string id = kit_->begin(file(line_of("a")));
  kit_->wait(id, [](const Json& batch) { return batch["tandem"]["paused"].is_string(); });
  known = true;
  kit_->wait_for(id, "completed");
  EXPECT_EQ(kit_->frontend.last_tenant(), "mine");
  kit_->service->stop();
}

TEST_F(ServiceTest, ABatchWhoseKeyGoesWhileItRunsStopsAndGoesOnWithTheKey) {
  std::atomic<bool> known = true;
  kit_->frontend.answers_until = 1;
  kit_->start({.max_prompts = {}, .terms_of = [&known](const std::string&) {
                 return known ? std::optional(OwnerTerms()) : std::nullopt;
               }});
  const std::string id = kit_->begin(file(line_of("a") + line_of("b")));
  kit_->wait(id, [](const Json& batch) { return batch["request_counts"]["completed"] == 1; });
  EXPECT_TRUE(kit_->batch(id)["tandem"]["paused"].is_null());
  known = false;
  const Json paused =
      kit_->wait(id, [](const Json& batch) { return batch["tandem"]["paused"].is_string(); });
  EXPECT_NE(paused["tandem"]["paused"].get<std::string>().find("API key"), std::string::npos);
  EXPECT_EQ(paused["request_counts"]["completed"], 1);
  EXPECT_EQ(kit_->frontend.cancelled, 1) << "what is under way is of no use to anyone";
  const int64_t submitted = kit_->frontend.submitted;
  EXPECT_EQ(submitted, 2);
  kit_->frontend.answers_until = INT64_MAX;
  known = true;
  EXPECT_EQ(kit_->wait_for(id, "completed")["request_counts"]["completed"], 2);
  EXPECT_EQ(kit_->frontend.submitted, 3) << "a line that has its answer is not asked again";
  kit_->service->stop();
}

TEST_F(ServiceTest, NewTermsOfAKeyCountForTheBatchThatRuns) {
  std::atomic<bool> changed = false;
  kit_->frontend.answers_until = 0;
  kit_->start({.max_prompts = {}, .terms_of = [&changed](const std::string&) {
                 return std::optional(OwnerTerms{.grant = {}, .tenant = changed ? "new" : "old"});
               }});
  const std::string id = kit_->begin(file(line_of("a")));
  for (int i = 0; i < 2000 && kit_->frontend.submitted < 1; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(kit_->frontend.submitted, 1);
  kit_->frontend.answers_until = INT64_MAX;
  changed = true;
  kit_->wait_for(id, "completed");
  EXPECT_EQ(kit_->frontend.last_tenant(), "new");
  EXPECT_EQ(kit_->frontend.submitted, 2);
  kit_->service->stop();
}

// The limit on the size of files stands for a full disk, which a test may not have: a write fails
// in the middle of a line. tests/e2e/test_batches.py has a disk that is full.
TEST_F(ServiceTest, ABatchWhoseAnswersDoNotFitWaitsAndGoesOn) {
  constexpr int kLines = 2000;
  constexpr rlim_t kRoom = 1 << 20;  // more than the database takes, less than the answers
  std::string lines;
  for (int i = 0; i < kLines; ++i) {
    lines += line_of(fmt::format("{:0>500}", i));
  }
  const std::string input = file(lines);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = kRoom, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  kit_->start();
  const std::string id = kit_->begin(input);
  const Json paused =
      kit_->wait(id, [](const Json& batch) { return batch["tandem"]["paused"].is_string(); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(paused["status"], "in_progress");
  const auto reason = paused["tandem"]["paused"].get<std::string>();
  EXPECT_NE(reason.find("full"), std::string::npos) << reason;
  EXPECT_EQ(reason.find(root_.path().string()), std::string::npos) << "paths are for the log";
  const Json batch = kit_->wait_for(id, "completed");
  EXPECT_EQ(batch["request_counts"]["completed"], kLines);
  std::ifstream content(root_.path() / "data" / "files" /
                        batch["output_file_id"].get<std::string>());
  std::set<std::string> answered;
  int count = 0;
  for (std::string line; std::getline(content, line); ++count) {
    answered.insert(Json::parse(line)["custom_id"].get<std::string>());
  }
  EXPECT_EQ(count, kLines);
  EXPECT_EQ(std::ssize(answered), kLines);
}

TEST_F(ServiceTest, WhenOneOfTheFilesOfABatchCannotBeWrittenTheOtherIsNotLeftBehind) {
  const std::string bad = R"({"custom_id":"b","url":"/v1/completions","body":{"temperature":-1}})";
  const std::string id = kit_->begin(file(line_of("a") + bad + "\n"));
  const std::filesystem::path files = root_.path() / "data" / "files";
  const std::string digits = id.substr(id.find('_') + 1);
  const std::filesystem::path in_the_way = files / ("file-" + digits + "-errors") / "x";
  std::filesystem::create_directories(in_the_way);
  kit_->start();
  const Json paused =
      kit_->wait(id, [](const Json& batch) { return batch["tandem"]["paused"].is_string(); });
  EXPECT_EQ(paused["status"], "finalizing");
  EXPECT_EQ(paused["request_counts"], Json({{"total", 2}, {"completed", 1}, {"failed", 1}}));
  kit_->service->stop();
  EXPECT_FALSE(std::filesystem::exists(files / ("file-" + digits + "-output")));
  std::filesystem::remove_all(in_the_way.parent_path());
  kit_->start();
  const Json batch = kit_->wait_for(id, "completed");
  EXPECT_EQ(kit_->lines(batch["output_file_id"]).size(), 1U);
  EXPECT_EQ(kit_->lines(batch["error_file_id"]).size(), 1U);
}

TEST_F(ServiceTest, AFileThatIsDeletedMeanwhileIsNotFoundAndNothingElse) {
  for (int i = 0; i < 200; ++i) {
    const std::string id = file(line_of("a"));
    const std::string body =
        Json({{"input_file_id", id}, {"endpoint", "/v1/completions"}, {"completion_window", "24h"}})
            .dump();
    std::thread deletes([&] { EXPECT_TRUE(kit_->service->delete_file("me", id).ok()); });
    const Result<ContentReader> content = kit_->service->content("me", id);
    const Result<std::string> batch = kit_->service->create_batch("me", body);
    deletes.join();
    EXPECT_TRUE(content.ok() || content.error().code == ErrorCode::kNotFound)
        << content.error().message;
    EXPECT_TRUE(batch.ok() || (batch.error().code == ErrorCode::kNotFound &&
                               batch.error().param == "input_file_id"))
        << batch.error().message;
  }
}

TEST_F(ServiceTest, ContentsThatAreMissingAlthoughTheFileIsThereAreAFault) {
  const std::string id = file(line_of("a"));
  std::filesystem::remove(root_.path() / "data" / "files" / id);
  EXPECT_EQ(kit_->service->content("me", id).error().code, ErrorCode::kIo);
}

TEST_F(ServiceTest, LinesOfTheBatchWhoseWindowEndsFirstGoFirst) {
  constexpr int64_t kUrgent = 300;
  constexpr int64_t kOthers = 1000;
  constexpr int64_t kAhead = 40;  // 30 of the urgent batch and 10 of the other
  const auto lines = [](int64_t count, std::string_view prompt) {
    std::string text;
    for (int64_t i = 0; i < count; ++i) {
      text += line_of(std::to_string(i), prompt);
    }
    return text;
  };
  const auto is_urgent = [](const Request& request) { return request.prompt.size() > 8; };
  kit_->frontend.holds = true;
  kit_->begin(file(lines(kOthers, "b")), "24h");
  kit_->begin(file(lines(kUrgent, "urgent prompt")), "1h");
  kit_->start({.sequences_ahead = kAhead, .max_prompts = {}, .terms_of = {}});
  // Both have begun: their inputs are checked one after the other.
  const auto is_other = [&](const Request& request) { return !is_urgent(request); };
  for (int i = 0; i < 2000 && kit_->frontend.count_held(is_other) == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  int64_t urgent = 0;  // answered
  int64_t others = 0;
  while (urgent < kUrgent) {
    const int64_t wanted = urgent == 0 ? 10 : std::min<int64_t>(25, kUrgent - urgent);
    for (int i = 0; i < 2000 && kit_->frontend.count_held(is_urgent) < wanted; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_GE(kit_->frontend.count_held(is_urgent), wanted) << "after " << urgent;
    AnsweringFrontend::Held held = kit_->frontend.take_held();
    EXPECT_LE(std::ssize(held), kAhead + kAhead / 2);
    for (auto& [id, request] : held) {
      ++(is_urgent(request) ? urgent : others);
      AnsweringFrontend::answer(id, request);
    }
  }
  EXPECT_GT(others, 0) << "the other batch does not stand still";
  EXPECT_LT(others, 200);
}

TEST_F(ServiceTest, AClockThatWasSetBackBeforeAStartLosesNothing) {
  const std::string input = file(line_of("a") + line_of("b"));
  kit_->frontend.answers_until = 1;
  kit_->start();
  const std::string id = kit_->begin(input, "1h");
  kit_->wait(id, [](const Json& batch) { return batch["request_counts"]["completed"] == 1; });
  restart(500'000).start();
  const std::string later = file(line_of("c"));
  const Json batch = kit_->wait_for(id, "completed");
  EXPECT_EQ(batch["request_counts"]["completed"], 2);
  EXPECT_EQ(kit_->frontend.submitted, 1);
  EXPECT_TRUE(kit_->service->file("me", input).ok());
  const Json files = Json::parse(*kit_->service->files("me", "limit=10&purpose=batch"));
  ASSERT_EQ(files["data"].size(), 2U);
  EXPECT_EQ(files["data"][0]["id"], later) << "the order is that of creation";
  EXPECT_EQ(files["data"][0]["created_at"], 500'000);
}

TEST_F(ServiceTest, AClockThatWasSetForwardBeforeAStartEndsTheWindowAndKeepsTheAnswers) {
  kit_->frontend.answers_until = 1;
  kit_->start();
  const std::string id = kit_->begin(file(line_of("a") + line_of("b")), "1h");
  kit_->wait(id, [](const Json& batch) { return batch["request_counts"]["completed"] == 1; });
  restart(1'000'000 + 2 * 3600).start();
  const Json batch = kit_->wait_for(id, "expired");
  EXPECT_EQ(batch["request_counts"], Json({{"total", 2}, {"completed", 1}, {"failed", 1}}));
  EXPECT_EQ(kit_->lines(batch["output_file_id"]).size(), 1U);
  EXPECT_EQ(kit_->lines(batch["error_file_id"])[0]["error"]["code"], "batch_expired");
  EXPECT_EQ(kit_->frontend.submitted, 0);
}

TEST_F(ServiceTest, AnInputWithLinesThatCannotBeToldApartFailsWhole) {
  kit_->start();
  const Json batch = kit_->wait_for(
      kit_->begin(file(line_of("a") + line_of("a") + "{\n" +
                       R"({"custom_id":"c","url":"/v1/chat/completions","body":{}})" + "\n" +
                       R"({"custom_id":"d","url":"/v1/completions","body":{"model":"gpt-4o"}})")),
      "failed");
  std::vector<std::pair<std::string, int64_t>> faults;
  for (const Json& fault : batch["errors"]["data"]) {
    faults.emplace_back(fault["code"], fault["line"]);
  }
  EXPECT_EQ(faults, (std::vector<std::pair<std::string, int64_t>>{{"duplicate_custom_id", 2},
                                                                  {"invalid_json", 3},
                                                                  {"mismatched_endpoint", 4},
                                                                  {"model_not_found", 5}}));
  EXPECT_EQ(kit_->frontend.submitted, 0);
}

TEST_F(ServiceTest, ABatchOutlivesItsFile) {
  const std::string input = file(line_of("a"));
  const std::string id = kit_->begin(input);
  ASSERT_TRUE(kit_->service->delete_file("me", input).ok());
  restart().start();
  EXPECT_EQ(kit_->wait_for(id, "completed")["request_counts"]["completed"], 1);
}

TEST_F(ServiceTest, UploadsNeedAPurposeAFileAndSpace) {
  const auto refused = [this](std::string_view body) {
    std::unique_ptr<Upload> upload =
        *kit_->service->begin_upload("me", "multipart/form-data; boundary=XY");
    const Status written = upload->write(body);
    return written.ok() ? upload->finish().error() : written.error();
  };
  const std::string purpose =
      "--XY\r\nContent-Disposition: form-data; name=purpose\r\n\r\nbatch\r\n";
  const std::string part = "--XY\r\nContent-Disposition: form-data; name=file\r\n\r\n";
  EXPECT_EQ(refused(part + "x\r\n--XY--").param, "purpose");
  EXPECT_EQ(
      refused("--XY\r\nContent-Disposition: form-data; name=purpose\r\n\r\nvision\r\n--XY\r\n")
          .param,
      "purpose");
  EXPECT_EQ(refused(purpose + "--XY--").param, "file");
  EXPECT_EQ(refused(purpose + part + "\r\n--XY--").param, "file");
  EXPECT_EQ(refused(purpose + part + "x\r\n" + part + "y\r\n--XY--").param, "file");
  EXPECT_EQ(refused(purpose + part + "half of a file").code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(std::filesystem::is_empty(root_.path() / "data" / "files"));
  EXPECT_NE(kit_->service->metrics_text().find("tandem_batch_storage_used_bytes 0"),
            std::string::npos);
}

TEST_F(ServiceTest, AFileMayBeAsLargeAsItsLimitAndNoLarger) {
  kit_->service.reset();
  kit_->options.file_bytes = 100;
  kit_->options.storage_bytes = 150;
  ASSERT_TRUE(kit_->open().ok());
  EXPECT_EQ(kit_->upload(std::string(101, 'x')).error().code, ErrorCode::kPayloadTooLarge);
  ASSERT_TRUE(kit_->upload(std::string(100, 'x')).ok());
  const Result<FileObject> second = kit_->upload(std::string(51, 'x'));
  EXPECT_EQ(second.error().code, ErrorCode::kPayloadTooLarge);
  EXPECT_NE(second.error().message.find("--batch-storage"), std::string::npos);
  EXPECT_TRUE(kit_->upload(std::string(50, 'x')).ok());
}

TEST_F(ServiceTest, OldFilesAreRemovedWhateverTheTimeOfDay) {
  kit_->start();
  const std::string id = file(line_of("a"));
  kit_->clock.advance(std::chrono::hours(31 * 24));
  for (int i = 0; i < 2000 && kit_->service->file("me", id).ok(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(kit_->service->file("me", id).error().code, ErrorCode::kNotFound);
}

TEST_F(ServiceTest, BatchesNeedAFileOfThePurposeBatchAndKnownFields) {
  const auto refused = [this](const Json& body) {
    return kit_->service->create_batch("me", body.dump()).error();
  };
  const Json good = {{"input_file_id", "file-none"},
                     {"endpoint", "/v1/completions"},
                     {"completion_window", "24h"}};
  EXPECT_EQ(refused(good).code, ErrorCode::kNotFound);
  for (const auto& [field, value] : std::vector<std::pair<std::string, Json>>{
           {"endpoint", "/v1/embeddings"},
           {"endpoint", nullptr},
           {"input_file_id", "../x"},
           {"completion_window", "0h"},
           {"completion_window", "169h"},
           {"completion_window", "8d"},
           {"completion_window", "h"},
           {"completion_window", "24"},
           {"metadata", {{"k", 1}}},
           {"metadata", {{std::string(65, 'k'), "v"}}},
           {"output_expires_after", {{"anchor", "created_at"}}}}) {
    Json body = good;
    body[field] = value;
    const Error error = refused(body);
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument) << field;
    EXPECT_EQ(error.param, field);
  }
}

}  // namespace
}  // namespace tandem::batches
