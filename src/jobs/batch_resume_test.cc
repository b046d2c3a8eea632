// Runs that were ended anywhere and gone on with leave the same answers as one that was not.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "jobs/batch_run.h"
#include "openai/batch_line.h"
#include "openai/test_support.h"

namespace tandem::jobs {
namespace {

namespace fs = std::filesystem;
using openai::Json;

// Answers requests with their prompt's length, some calls later and in an order of its own.
class ShuffledFrontend final : public Frontend {
 public:
  [[nodiscard]] const ServedModel& model() const override { return model_; }
  [[nodiscard]] ServingState state() const override { return ServingState::kReady; }
  [[nodiscard]] FrontendLoad load() const override { return {}; }
  Submission submit(Request request) override {
    const auto id = static_cast<RequestId>(++submitted_);
    waiting_.emplace_back(id, std::move(request));
    return id;
  }
  void cancel(RequestId id) override {
    std::erase_if(waiting_, [id](const auto& one) { return one.first == id; });
  }
  void stop(RequestId, int32_t) override {}

  void answer_one() {
    if (waiting_.empty()) {
      return;
    }
    const size_t which = draw_() % waiting_.size();
    const auto [id, request] = std::move(waiting_[which]);
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(which));
    std::vector<TokenEvent> events =
        openai::text_events(std::to_string(std::ssize(request.prompt)));
    events.push_back(openai::finish_event(FinishReason::kLength));
    for (TokenEvent& event : events) {
      event.request = id;
      event.tag = request.sink_tag;
    }
    request.sink->deliver(std::move(events));
  }

  ServedModel model_ = openai::tiny_model();
  std::mt19937 draw_{7};
  std::vector<std::pair<RequestId, Request>> waiting_;
  int64_t submitted_ = 0;
};

class BatchResume : public ::testing::Test {
 protected:
  BatchResume() {
    std::string pattern = (fs::temp_directory_path() / "tandem_resume_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~BatchResume() override { fs::remove_all(folder_); }

  // Lines of all kinds, many with the custom_id of another one.
  static std::string batch(int lines) {
    std::mt19937 draw(3);
    std::string text;
    for (int i = 0; i < lines; ++i) {
      const std::string id = "id-" + std::to_string(draw() % static_cast<unsigned>(lines));
      Json line = {{"custom_id", id},
                   {"method", "POST"},
                   {"url", "/v1/completions"},
                   {"body", {{"model", "tiny"}, {"prompt", std::string(1 + draw() % 9, 'x')}}}};
      switch (draw() % 12) {
        case 0:
          line["url"] = "/v1/embeddings";
          break;
        case 1:
          line["method"] = "GET";
          break;
        case 2:
          line.erase("body");
          break;
        case 3:
          line["body"]["temperature"] = -1;
          break;
        case 4:
          line["body"]["model"] = "another";
          break;
        case 5:
          line["body"]["prompt"] = std::string(200, 'x');  // beyond the context
          break;
        case 6:
          line["body"]["prompt"] = std::string(3000, 'x');  // beyond the longest line
          break;
        case 7:
          line["custom_id"] = "";
          break;
        case 8:
          text += "{\n";
          continue;
        default:
          break;
      }
      text += line.dump() + "\n";
    }
    return text;
  }

  [[nodiscard]] fs::path in() const { return folder_ / "in.jsonl"; }
  [[nodiscard]] fs::path out() const { return folder_ / "out.jsonl"; }
  [[nodiscard]] std::string output() const {
    std::stringstream text;
    text << std::ifstream(out(), std::ios::binary).rdbuf();
    return text.str();
  }
  // Whole lines, sorted: the order is that in which they ended.
  [[nodiscard]] std::vector<std::string> answers() const {
    std::vector<std::string> lines;
    std::istringstream text(output());
    for (std::string one; std::getline(text, one);) lines.push_back(one);
    std::ranges::sort(lines);
    return lines;
  }
  // Stops after so many looks at should_stop; each lets one request end.
  Result<BatchProgress> run(int64_t looks) {
    BatchRunOptions options;
    LineOrder order({.max_sequences_ahead = 4, .make_order = {}});
    options.order = &order;
    options.wake_every = Nanos{0};
    options.should_stop = [&] {
      frontend_.answer_one();
      return --looks < 0;
    };
    ASSIGN_OR_RETURN(BatchInput input, BatchInput::open(in(), 2000));
    ASSIGN_OR_RETURN(BatchOutput written, BatchOutput::open(out()));
    ASSIGN_OR_RETURN(const BatchProgress start, inspect_batch(input, written.written()));
    Result<BatchProgress> progress = run_batch(input, written, start, models_, clock_, options);
    frontend_.waiting_.clear();
    return progress;
  }

  static constexpr int64_t kToTheEnd = 1 << 30;

  fs::path folder_;
  openai::TestModel model_;
  ShuffledFrontend frontend_;
  const openai::ModelDirectory models_ = model_.served_by(frontend_);
  const SteadyClock clock_;
};

TEST_F(BatchResume, WhereARunWasEndedNeverChangesAnAnswer) {
  std::ofstream(in()) << batch(200);
  ASSERT_TRUE(run(kToTheEnd).ok());
  const std::vector<std::string> whole = answers();
  ASSERT_EQ(whole.size(), 200U);
  for (const char* code : {"invalid_json", "invalid_custom_id", "invalid_url", "invalid_method",
                           "invalid_body", "line_too_long", "duplicate_custom_id", "context_length",
                           "model_not_found", "\"error\":null"}) {
    EXPECT_TRUE(std::ranges::any_of(whole, [code](const std::string& line) {
      return line.find(code) != std::string::npos;
    })) << code;
  }
  std::mt19937 draw(11);
  for (int attempt = 0; attempt < 20; ++attempt) {
    fs::remove(out());
    for (int stops = 0; stops < 5; ++stops) {
      const auto stopped = run(static_cast<int64_t>(draw() % 60));
      ASSERT_TRUE(stopped.ok()) << stopped.error().message;
      // A kill leaves any beginning of what was written.
      fs::resize_file(out(), fs::file_size(out()) - draw() % (fs::file_size(out()) / 4 + 1));
    }
    const auto progress = run(kToTheEnd);
    ASSERT_TRUE(progress.ok()) << progress.error().message;
    EXPECT_EQ(progress->before + progress->done, 200);
    ASSERT_EQ(answers(), whole) << attempt;
  }
}

TEST_F(BatchResume, ZerosThatALossOfPowerLeftAreTakenOut) {
  std::ofstream(in()) << batch(60);
  ASSERT_TRUE(run(kToTheEnd).ok());
  const std::vector<std::string> whole = answers();
  const std::string text = output();
  std::mt19937 draw(5);
  for (int attempt = 0; attempt < 60; ++attempt) {
    std::string broken = text;
    const size_t begin = draw() % broken.size();
    const size_t end = std::min(broken.size(), begin + 1 + draw() % 900);
    std::fill(broken.begin() + static_cast<ptrdiff_t>(begin),
              broken.begin() + static_cast<ptrdiff_t>(end), '\0');
    broken.resize(broken.size() - (attempt % 2 == 0 ? 0 : draw() % (broken.size() - end + 1)));
    std::ofstream(out(), std::ios::binary | std::ios::trunc) << broken;
    const auto progress = run(kToTheEnd);
    ASSERT_TRUE(progress.ok()) << progress.error().message;
    EXPECT_LT(progress->done, 60);
    EXPECT_EQ(progress->before + progress->done, 60);
    ASSERT_EQ(answers(), whole) << attempt;
  }
}

TEST_F(BatchResume, ZerosAloneAreNoOutput) {
  std::ofstream(in()) << batch(3);
  for (const std::string& text : {std::string(100, '\0'), std::string(100, '\0') + "\n",
                                  std::string(100, '\0') + "\nnotes\n"}) {
    std::ofstream(out(), std::ios::binary | std::ios::trunc) << text;
    const auto progress = run(kToTheEnd);
    ASSERT_FALSE(progress.ok());
    EXPECT_EQ(progress.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(output(), text);
  }
}

}  // namespace
}  // namespace tandem::jobs
