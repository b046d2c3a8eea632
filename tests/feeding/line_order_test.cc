// Batches whose lines are submitted in the orders of policies.
#include "jobs/line_order.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <latch>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "jobs/batch_run.h"
#include "jobs/line_feed.h"
#include "jobs/prefix_names.h"
#include "kv/block_hash.h"
#include "openai/test_support.h"
#include "plan/fcfs_order.h"
#include "scheduler/psm_order.h"

namespace tandem::jobs {
namespace {

namespace fs = std::filesystem;
using openai::Json;

constexpr int32_t kBlockTokens = 4;

LineOrderOptions by_prefix(int32_t utility = 100) {
  return {.make_order = [utility] { return std::make_unique<PsmOrder>(utility); },
          .block_tokens = kBlockTokens};
}

LineOrderOptions few_places() {
  LineOrderOptions options = by_prefix();
  options.max_sequences_ahead = 4;
  return options;
}

// Answers each request with "ok" in the call that submits it.
class InstantFrontend final : public Frontend {
 public:
  [[nodiscard]] const ServedModel& model() const override { return model_; }
  [[nodiscard]] ServingState state() const override { return ServingState::kReady; }
  [[nodiscard]] FrontendLoad load() const override { return {}; }
  Submission submit(Request request) override {
    if (is_full_ && is_full_()) return Error{ErrorCode::kOverloaded, "full", ""};
    const auto id = RequestId{++submitted_};
    openai::deliver_answer(id, request, "ok");
    return id;
  }
  void cancel(RequestId) override {}
  void stop(RequestId, int32_t) override {}

  ServedModel model_ = openai::tiny_model();
  std::function<bool()> is_full_;
  std::atomic<int64_t> submitted_{0};
};

class Feeding : public ::testing::Test {
 protected:
  Feeding() {
    std::string pattern = (fs::temp_directory_path() / "tandem_feeding_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Feeding() override { fs::remove_all(folder_); }

  static std::string line(int64_t number, std::string_view prompt) {
    return Json({{"custom_id", std::to_string(number)},
                 {"url", "/v1/completions"},
                 {"body", {{"prompt", prompt}, {"max_tokens", 2}}}})
               .dump() +
           "\n";
  }
  // `prefixes` prompts of 20 equal letters, each with `lines` endings; line by line another prefix.
  static std::string interleaved(int prefixes, int lines) {
    std::string text;
    for (int i = 0; i < prefixes * lines; ++i) {
      text += line(i, std::string(20, static_cast<char>('a' + i % prefixes)) + std::to_string(i));
    }
    return text;
  }
  void write(const std::string& text) const { std::ofstream(in()) << text; }
  [[nodiscard]] fs::path in() const { return folder_ / "in.jsonl"; }
  [[nodiscard]] fs::path out() const { return folder_ / "out.jsonl"; }
  [[nodiscard]] std::map<int64_t, int> answers() const { return answers(out()); }
  [[nodiscard]] static std::map<int64_t, int> answers(const fs::path& path) {
    std::map<int64_t, int> count;
    std::ifstream text(path);
    for (std::string answer; std::getline(text, answer);) {
      const std::string id = Json::parse(answer)["id"];
      ++count[std::stoll(id.substr(std::string_view("batch_req_").size()))];
    }
    return count;
  }
  // Stops after `looks` calls of should_stop.
  Result<BatchProgress> run(LineOrder& order, int64_t looks = 1 << 20) {
    return run(order, out(), "", looks);
  }
  Result<BatchProgress> run(LineOrder& order, const fs::path& path, const std::string& tenant,
                            int64_t looks) {
    BatchRunOptions options;
    options.tenant = tenant;
    options.order = &order;
    options.wake_every = std::chrono::milliseconds(1);
    options.should_stop = [&looks] { return --looks < 0; };
    ASSIGN_OR_RETURN(BatchInput input, BatchInput::open(in(), 1 << 20));
    ASSIGN_OR_RETURN(BatchOutput written, BatchOutput::open(path));
    ASSIGN_OR_RETURN(const BatchProgress start, inspect_batch(input, written.written()));
    return run_batch(input, written, start, models_, clock_, options);
  }
  // Waits until `lines` lines are known.
  static void wait_for_known(LineFeed& feed, int64_t lines, const LineOrder& order) {
    feed.read_ahead();
    for (int i = 0; i < 10'000 && order.known_lines() < lines; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_EQ(order.known_lines(), lines);
  }
  // The numbers of all lines that the feed has now, in its order.
  static std::vector<int64_t> drain(LineFeed& feed) {
    std::vector<int64_t> numbers;
    while (!feed.exhausted()) {
      const Result<std::optional<FedLine>> next = feed.next();
      CHECK(next.ok(), "{}", next.error().message);
      if (*next) {
        numbers.push_back((*next)->id.number);
      }
    }
    return numbers;
  }

  fs::path folder_;
  openai::TestModel model_;
  InstantFrontend frontend_;
  const openai::ModelDirectory models_ = model_.served_by(frontend_);
  const SteadyClock clock_;
};

LineOrder::Terms terms(std::string tenant = "", Nanos deadline = Nanos::max()) {
  return {.tenant = std::move(tenant), .deadline = deadline, .wake = [] {}};
}

TEST(PrefixNames, AreThoseOfTheCacheAndGrowRarer) {
  std::vector<TokenId> prompt(4096);
  for (size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<TokenId>(i % 250);
  }
  std::vector<BlockHash> blocks;
  extend_hashes(blocks, root_hash("key/salt"), prompt, 4);
  const std::vector<BlockHash> names = prefix_names("key/salt", prompt, 4);
  ASSERT_EQ(names.size(), kMaxPrefixNames);
  const std::vector<size_t> named = {1,  2,  3,  4,  5,  6,  7,  8,  10, 12, 14,
                                     16, 20, 24, 28, 32, 40, 48, 56, 64, 80};
  for (size_t i = 0; i < named.size(); ++i) {
    EXPECT_EQ(names[i], blocks[named[i] - 1]) << i;
  }
  EXPECT_EQ(names.back(), blocks[511]);
  EXPECT_TRUE(prefix_names("", std::span(prompt).first(3), 4).empty());
  EXPECT_NE(prefix_names("other", prompt, 4).front(), names.front());
}

TEST_F(Feeding, LinesThatShareAPrefixFollowEachOther) {
  constexpr int kPrefixes = 8;
  constexpr int kLines = 16;
  write(interleaved(kPrefixes, kLines));
  for (const int32_t utility : {100, 90}) {
    LineOrder order(by_prefix(utility));
    auto input = BatchInput::open(in(), 1 << 20);
    const WrittenLines written;
    LineFeed feed(*input, written, models_, order, terms());
    EXPECT_EQ(feed.max_ahead(0), 256) << "half of the places until the file is known";
    wait_for_known(feed, kPrefixes * kLines, order);
    for (int i = 0; i < 1000 && feed.max_ahead(0) < 512; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(feed.max_ahead(0), 512);
    const std::vector<int64_t> numbers = drain(feed);
    ASSERT_EQ(numbers.size(), size_t{kPrefixes} * kLines);
    int changes = 0;
    for (size_t i = 1; i < numbers.size(); ++i) {
      changes += (numbers[i] - 1) % kPrefixes != (numbers[i - 1] - 1) % kPrefixes ? 1 : 0;
    }
    // One in ten picks is the oldest line, which may be of another prefix.
    EXPECT_LE(changes, utility == 100 ? kPrefixes - 1 : kPrefixes - 1 + 2 * 13);
  }
}

TEST_F(Feeding, WholeRunsAnswerEveryLineOnceWhateverTheOrder) {
  write("nonsense\n" + interleaved(5, 20) + line(3, "twice") + line(1000, std::string(100, 'x')));
  std::map<int64_t, int> all;
  for (int64_t number = 1; number <= 103; ++number) {
    all[number] = 1;
  }
  LineOrder order(by_prefix());
  const auto progress = run(order);
  ASSERT_TRUE(progress.ok()) << progress.error().message;
  EXPECT_EQ(progress->done, 103);
  EXPECT_EQ(progress->failed, 3) << "not JSON, a custom_id that is taken, and a prompt too long";
  EXPECT_EQ(answers(), all);
}

TEST_F(Feeding, RunsBesideEachOtherAnswerEveryLineOnce) {
  constexpr int kRuns = 6;
  write(interleaved(10, 100));
  LineOrder order({.max_sequences_ahead = 8,
                   .make_order = by_prefix(90).make_order,
                   .block_tokens = kBlockTokens,
                   .max_known_lines = 300});
  std::vector<std::thread> threads;
  for (int i = 0; i < kRuns; ++i) {
    threads.emplace_back([this, &order, i] {
      const fs::path path = folder_ / std::to_string(i);
      const std::string tenant = i % 3 == 0 ? "you" : "me";
      bool stopped = true;
      for (int64_t looks = 5; stopped; looks *= 3) {  // runs that are stopped, and begin again
        const auto progress = run(order, path, tenant, looks);
        ASSERT_TRUE(progress.ok()) << progress.error().message;
        stopped = progress->stopped;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (int i = 0; i < kRuns; ++i) {
    const std::map<int64_t, int> count = answers(folder_ / std::to_string(i));
    EXPECT_EQ(count.size(), 1000U);
    EXPECT_TRUE(std::ranges::all_of(count, [](const auto& line) { return line.second == 1; }));
  }
  EXPECT_EQ(order.known_lines(), 0);
}

TEST_F(Feeding, ARunThatWasStoppedContinuesInOrder) {
  constexpr int kPrefixes = 4;
  constexpr int kLines = 50;
  write(interleaved(kPrefixes, kLines));
  {
    LineOrder few({.max_sequences_ahead = 2,
                   .make_order = by_prefix().make_order,
                   .block_tokens = kBlockTokens});
    const auto stopped = run(few, 60);
    ASSERT_TRUE(stopped.ok()) << stopped.error().message;
    EXPECT_TRUE(stopped->stopped);
  }
  const size_t answered = answers().size();
  ASSERT_GT(answered, 10U);
  ASSERT_LT(answered, size_t{kPrefixes} * kLines);
  LineOrder order(by_prefix());
  auto input = BatchInput::open(in(), 1 << 20);
  auto output = BatchOutput::open(out());
  LineFeed feed(*input, output->written(), models_, order, terms());
  wait_for_known(feed, kPrefixes * kLines - static_cast<int64_t>(answered), order);
  const std::vector<int64_t> numbers = drain(feed);
  EXPECT_EQ(numbers.size() + answered, size_t{kPrefixes} * kLines);
  int changes = 0;
  for (size_t i = 1; i < numbers.size(); ++i) {
    EXPECT_FALSE(output->written().hash_by_number.contains(numbers[i]));
    changes += (numbers[i] - 1) % kPrefixes != (numbers[i - 1] - 1) % kPrefixes ? 1 : 0;
  }
  EXPECT_LE(changes, kPrefixes - 1);
}

TEST_F(Feeding, LinesThatAreNoRequestsComeFirst) {
  write(line(1, "aaaaaaaaaaaaaaaa") + "nonsense\n" + line(2, "bbbbbbbbbbbbbbbb") +
        line(3, std::string(100, 'x')) + line(1, "aaaaaaaaaaaaaaaa"));
  LineOrder order(by_prefix());
  auto input = BatchInput::open(in(), 1 << 20);
  const WrittenLines written;
  LineFeed feed(*input, written, models_, order, terms());
  wait_for_known(feed, 5, order);
  EXPECT_EQ(drain(feed), (std::vector<int64_t>{2, 4, 5, 1, 3}));
}

TEST_F(Feeding, AFileThatBecomesShorterIsAnError) {
  write(interleaved(2, 2));
  LineOrder order(by_prefix());
  auto input = BatchInput::open(in(), 1 << 20);
  const WrittenLines written;
  LineFeed feed(*input, written, models_, order, terms());
  wait_for_known(feed, 4, order);
  fs::resize_file(in(), 10);
  EXPECT_EQ(feed.next().error().code, ErrorCode::kIo);
}

TEST_F(Feeding, LinesBeyondTheLimitFollowAsPlacesBecomeFree) {
  constexpr int64_t kKnown = 100'000;
  {
    std::ofstream text(in());
    for (int64_t i = 0; i <= kKnown; ++i) {
      text << R"({"custom_id":")" << i << R"(","url":"/v1/completions","body":{"prompt":"abcdefgh)"
           << i % 10 << R"("}})"
           << "\n";
    }
  }
  LineOrder order(by_prefix());
  auto input = BatchInput::open(in(), 1 << 20);
  const WrittenLines written;
  LineFeed feed(*input, written, models_, order, terms());
  for (int i = 0; i < 120'000 && order.known_lines() < kKnown; ++i) {
    feed.read_ahead();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(order.known_lines(), kKnown);
  EXPECT_EQ(feed.max_ahead(0), 512) << "all places, since nothing more can become known";
  ASSERT_TRUE(feed.next().ok());
  for (int i = 0; i < 10'000 && order.known_lines() < kKnown; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(order.known_lines(), kKnown);
  std::vector<bool> seen(kKnown + 2);
  for (int64_t i = 1; i < 2000; ++i) {
    const auto next = feed.next();
    ASSERT_TRUE(next.ok() && *next);
    EXPECT_FALSE(seen[static_cast<size_t>((*next)->id.number)]);
    seen[static_cast<size_t>((*next)->id.number)] = true;
  }
}

// One thread that reads lines ahead without a pause leaves turns to others.
TEST_F(Feeding, FilesAreReadAheadInTurn) {
  constexpr int64_t kLines = 4000;
  constexpr Nanos kOfALine = std::chrono::microseconds(20);
  LineOrder order(by_prefix());
  const std::atomic<bool> stop{false};
  std::vector<LineOrder::Batch*> batches;
  for (const char* tenant : {"me", "me", "you"}) {
    batches.push_back(&order.join(terms(tenant)));
  }
  std::vector<int64_t> known_at_end;  // of all batches, when the first was read
  std::mutex mutex;
  std::latch all(std::ssize(batches));
  std::vector<std::thread> threads;
  for (LineOrder::Batch* batch : batches) {
    threads.emplace_back([&, batch] {
      all.arrive_and_wait();
      for (int64_t number = 1; number <= kLines && order.begin_line(*batch, stop); ++number) {
        const KnownLine line{.place = {.number = number}};
        const Nanos end = clock_.now() + kOfALine;
        while (clock_.now() < end) {
        }
        order.end_line(*batch, &line, {});
      }
      const std::scoped_lock lock(mutex);
      for (LineOrder::Batch* each : batches) {
        if (known_at_end.size() < batches.size()) {
          known_at_end.push_back(order.known(*each));
        }
      }
      order.end_reading(*batch);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_GT(std::ranges::min(known_at_end), kLines / 2);
  for (LineOrder::Batch* batch : batches) {
    order.leave(*batch);
  }
}

// A file of blank lines counts them all.
TEST_F(Feeding, LineNumbersMayBeLarge) {
  LineOrder order(by_prefix());
  const std::atomic<bool> stop{false};
  for (const Nanos deadline : {Nanos::max(), Nanos(std::chrono::hours(1))}) {
    LineOrder::Batch& batch = order.join(terms("me", deadline));
    for (const int64_t number : {int64_t{1} << 29, (int64_t{1} << 29) + 1, int64_t{1} << 32}) {
      ASSERT_TRUE(order.begin_line(batch, stop));
      const KnownLine line{.place = {.number = number}};
      order.end_line(batch, &line, {});
    }
    EXPECT_EQ(order.pick(batch).line->place.number, int64_t{1} << 29);
    EXPECT_EQ(order.pick(batch).line->place.number, (int64_t{1} << 29) + 1);
    EXPECT_EQ(order.pick(batch).line->place.number, int64_t{1} << 32);
    order.leave(batch);
  }
}

TEST_F(Feeding, WithoutAThreadLinesComeInTheOrderOfTheFile) {
  write(interleaved(2, 20));
  pthread_attr_t before;
  pthread_attr_t no_memory;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  pthread_attr_init(&no_memory);
  ASSERT_EQ(pthread_attr_setstacksize(&no_memory, size_t{1} << 47), 0);
  ASSERT_EQ(pthread_setattr_default_np(&no_memory), 0);
  LineOrder order(by_prefix());
  auto input = BatchInput::open(in(), 1 << 20);
  const WrittenLines written;
  LineFeed feed(*input, written, models_, order, terms());
  feed.read_ahead();
  feed.read_ahead();
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
  EXPECT_EQ(feed.max_ahead(0), 512) << "nothing will become known";
  const std::vector<int64_t> numbers = drain(feed);
  EXPECT_EQ(numbers.size(), 40U);
  EXPECT_TRUE(std::ranges::is_sorted(numbers));
}

TEST_F(Feeding, OnlyBatchesOfATenantAreOrderedTogether) {
  write(interleaved(2, 3));
  LineOrder order(by_prefix());
  auto first = BatchInput::open(in(), 1 << 20);
  auto second = BatchInput::open(in(), 1 << 20);
  auto third = BatchInput::open(in(), 1 << 20);
  const WrittenLines written;
  LineFeed mine(*first, written, models_, order, terms("me", std::chrono::hours(1)));
  wait_for_known(mine, 6, order);
  LineFeed also_mine(*second, written, models_, order, terms("me", std::chrono::hours(2)));
  wait_for_known(also_mine, 12, order);
  LineFeed yours(*third, written, models_, order, terms("you", std::chrono::hours(3)));
  wait_for_known(yours, 18, order);
  const auto take = [](LineFeed& feed) {
    const auto next = feed.next();
    CHECK(next.ok(), "{}", next.error().message);
    return *next ? (*next)->id.number : 0;
  };
  // The three lines of a prefix in the first file, then in the second.
  EXPECT_EQ(take(also_mine), 0);
  EXPECT_EQ(std::vector({take(mine), take(mine), take(mine)}), (std::vector<int64_t>{1, 3, 5}));
  EXPECT_EQ(take(mine), 0) << "the same prefix in the other batch is next";
  EXPECT_EQ(take(yours), 1);
  EXPECT_EQ(std::vector({take(also_mine), take(also_mine), take(also_mine)}),
            (std::vector<int64_t>{1, 3, 5}));
  EXPECT_EQ(take(also_mine), 0);
  EXPECT_EQ(take(mine), 2);
}

// Its key has used up its places with another batch.
TEST_F(Feeding, ABatchThatMaySubmitNothingSleeps) {
  write(interleaved(2, 4));
  LineOrder order(few_places());
  LineOrder::Batch& other = order.join(terms("me"));
  order.end_reading(other);
  EXPECT_EQ(order.max_ahead(other, 4), 4);
  const Nanos began = clock_.now();
  const auto progress = run(order, out(), "me", 200);
  EXPECT_GT(clock_.now() - began, std::chrono::milliseconds(100));
  EXPECT_EQ(progress->done, 0);
  order.leave(other);
}

TEST_F(Feeding, ALineThatWasRefusedGoesAloneEvenWhereOthersHaveAllPlaces) {
  write(interleaved(1, 1));
  LineOrder order(few_places());
  LineOrder::Batch& other = order.join(terms("me"));
  order.end_reading(other);
  frontend_.is_full_ = [&, asked = 0]() mutable {
    order.max_ahead(other, 4);
    return ++asked < 3;
  };
  EXPECT_EQ(run(order, out(), "me", 200)->done, 1);
  order.leave(other);
}

TEST_F(Feeding, TheBatchWhoseDeadlineComesFirstGetsThePlaces) {
  for (const FcfsOrder::By by : {FcfsOrder::By::kArrival, FcfsOrder::By::kDeadline}) {
    LineOrder order({.max_sequences_ahead = 100, .make_order = [by] { return fcfs_order(by); }});
    LineOrder::Batch& late = order.join(terms("me", std::chrono::hours(24)));
    EXPECT_EQ(order.max_ahead(late, 0), 100);
    LineOrder::Batch& urgent = order.join(terms("me", std::chrono::hours(1)));
    EXPECT_EQ(order.max_ahead(late, 60), 25);
    EXPECT_EQ(order.max_ahead(urgent, 0), 40);
    EXPECT_EQ(order.max_ahead(late, 25), 25);
    EXPECT_EQ(order.max_ahead(urgent, 40), 75);
    order.end_of_file(urgent);
    EXPECT_EQ(order.max_ahead(urgent, 10), 25);
    EXPECT_EQ(order.max_ahead(late, 25), 90);
    order.leave(urgent);
    EXPECT_EQ(order.max_ahead(late, 25), 100);
    order.leave(late);
  }
}

}  // namespace
}  // namespace tandem::jobs
