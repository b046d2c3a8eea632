// For the tests of batches/: a folder of their own, a front end that answers by itself, and a
// service over both.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "batches/service.h"
#include "openai/test_support.h"

namespace tandem::batches {

class TestFolder {
 public:
  TestFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "tandem_batches_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  [[nodiscard]] std::filesystem::path path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string text_in(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Answers each request with "ok" in the call that submits it, unless it is to stay silent.
class AnsweringFrontend final : public Frontend {
 public:
  [[nodiscard]] const ServedModel& model() const override { return model_; }
  [[nodiscard]] ServingState state() const override { return state_; }
  [[nodiscard]] FrontendLoad load() const override { return {}; }
  Submission submit(Request request) override {
    const int64_t number = ++submitted;
    {
      const std::scoped_lock lock(mutex_);
      last_tenant_ = request.tenant;
    }
    const auto id = static_cast<RequestId>(number);
    if (holds) {
      const std::scoped_lock lock(mutex_);
      held_.emplace_back(id, std::move(request));
    } else if (number <= answers_until) {
      answer(id, request);
    }
    return id;
  }
  std::string last_tenant() {
    const std::scoped_lock lock(mutex_);
    return last_tenant_;
  }
  // Submitted while `holds` was set, and not taken yet.
  using Held = std::vector<std::pair<RequestId, Request>>;
  int64_t count_held(const std::function<bool(const Request&)>& counts) {
    const std::scoped_lock lock(mutex_);
    return std::ranges::count_if(held_, [&](const auto& held) { return counts(held.second); });
  }
  Held take_held() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(held_, {});
  }
  static void answer(RequestId id, Request& request) { openai::deliver_answer(id, request, "ok"); }
  void cancel(RequestId) override { ++cancelled; }
  void stop(RequestId, int32_t) override {}

  std::atomic<int64_t> submitted{0};
  std::atomic<int64_t> cancelled{0};
  std::atomic<int64_t> answers_until{INT64_MAX};  // later submissions get no answer
  std::atomic<bool> holds{false};                 // submissions are kept for the test to answer
  std::atomic<ServingState> state_{ServingState::kReady};

 private:
  ServedModel model_ = openai::tiny_model();
  std::mutex mutex_;  // guards what follows
  std::string last_tenant_;
  Held held_;
};

inline std::string line_of(std::string_view custom_id, std::string_view prompt = "hi") {
  return openai::Json({{"custom_id", custom_id},
                       {"method", "POST"},
                       {"url", "/v1/completions"},
                       {"body", {{"model", "tiny"}, {"prompt", prompt}, {"max_tokens", 2}}}})
             .dump() +
         "\n";
}

// Time that passes, and that the test moves on besides. Any thread.
class SharedClock final : public Clock {
 public:
  [[nodiscard]] Nanos now() const override {
    return std::chrono::steady_clock::now().time_since_epoch() + ahead_.load();
  }
  void advance(Nanos by) { ahead_ = ahead_.load() + by; }

 private:
  std::atomic<Nanos> ahead_{Nanos{0}};
};

// A service with a clock that the test moves. One at a time for a folder.
class TestService {
 public:
  explicit TestService(const std::filesystem::path& folder) {
    options.data_folder = folder / "data";
    options.retry_after = std::chrono::milliseconds(1);
    options.min_free_bytes = 0;
  }
  Status open(int64_t unix_seconds = 1'000'000) {
    ASSIGN_OR_RETURN(service, Service::open(options, clock, unix_seconds));
    return {};
  }
  void start(RunnerOptions runner = {}) { service->start(models, std::move(runner)); }

  // Uploads the text with the purpose "batch".
  Result<FileObject> upload(std::string_view text, std::string_view owner = "me") {
    ASSIGN_OR_RETURN(const std::unique_ptr<Upload> upload,
                     service->begin_upload(owner, "multipart/form-data; boundary=XY"));
    RETURN_IF_ERROR(upload->write(
        "--XY\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--XY\r\n"
        "Content-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n"));
    RETURN_IF_ERROR(upload->write(text));
    RETURN_IF_ERROR(upload->write("\r\n--XY--\r\n"));
    return upload->finish();
  }
  // Begins a batch of it. Returns its id.
  std::string begin(std::string_view file_id, std::string_view window = "24h",
                    std::string_view owner = "me") {
    const Result<std::string> batch =
        service->create_batch(owner, openai::Json({{"input_file_id", file_id},
                                                   {"endpoint", "/v1/completions"},
                                                   {"completion_window", window}})
                                         .dump());
    CHECK(batch.ok(), "{}", batch.error().message);
    return openai::Json::parse(*batch)["id"];
  }
  openai::Json batch(const std::string& id, std::string_view owner = "me") {
    const Result<std::string> batch = service->batch(owner, id);
    CHECK(batch.ok(), "{}", batch.error().message);
    return openai::Json::parse(*batch);
  }
  [[nodiscard]] std::string metric(std::string_view name) const {
    const std::string text = service->metrics_text();
    const size_t begin = text.find(std::string("\n").append(name).append(" ")) + name.size() + 2;
    return text.substr(begin, text.find('\n', begin) - begin);
  }
  // Waits until the batch is in this state, for at most 20 seconds.
  openai::Json wait_for(const std::string& id, std::string_view state) {
    return wait(id, [state](const openai::Json& batch) { return batch["status"] == state; });
  }
  openai::Json wait(const std::string& id, const std::function<bool(const openai::Json&)>& holds,
                    std::string_view owner = "me") {
    for (int i = 0; i < 2000; ++i) {
      openai::Json now = batch(id, owner);
      if (holds(now)) {
        return now;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    CHECK(false, "the batch is {}", batch(id, owner).dump());
  }
  std::vector<openai::Json> lines(const openai::Json& file_id, std::string_view owner = "me") {
    std::vector<openai::Json> parsed;
    if (file_id.is_null()) {
      return parsed;
    }
    Result<ContentReader> content = service->content(owner, file_id.get<std::string>());
    CHECK(content.ok(), "{}", content.error().message);
    std::istringstream text(*content->next(1 << 20));
    for (std::string line; std::getline(text, line);) {
      parsed.push_back(openai::Json::parse(line));
    }
    return parsed;
  }

  BatchOptions options;
  SharedClock clock;
  openai::TestModel model;
  AnsweringFrontend frontend;
  const openai::ModelDirectory models = model.served_by(frontend);
  std::unique_ptr<Service> service;
};

}  // namespace tandem::batches
