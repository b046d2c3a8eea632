#include "workload/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <unordered_set>

namespace tandem::workload {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<Trace> parsed(std::string_view text, TraceFormat format = TraceFormat::kAuto) {
  return parse_trace(text, "t.csv", {.format = format});
}

std::string error_of(std::string_view text) {
  const Result<Trace> trace = parsed(text);
  return trace.ok() ? "no error" : trace.error().message;
}

TEST(Trace, OwnSchemaIsReadByColumnNameInAnyOrder) {
  const Trace trace = *parsed(
      "output_tokens,model_id,arrival_s,input_tokens,hash_ids\n"
      "7,3,0.5,600,10 11\r\n"
      "8,0,1.25,512,10\n");
  EXPECT_EQ(trace.format, TraceFormat::kTandem);
  EXPECT_EQ(trace.models, 4);
  ASSERT_EQ(trace.rows.size(), 2);
  EXPECT_EQ(trace.rows[0].at, std::chrono::milliseconds(500));
  EXPECT_EQ(trace.rows[0].input_tokens, 600);
  EXPECT_EQ(trace.rows[0].output_tokens, 7);
  EXPECT_EQ(trace.rows[0].model, 3);
  EXPECT_THAT(trace.rows[0].hash_ids, ElementsAre(10, 11));
}

TEST(Trace, LengthsWithoutTimesAreATraceWithoutTimes) {
  const Trace trace = *parsed("input_tokens,output_tokens\n5,6\n");
  EXPECT_FALSE(trace.has_times);
  EXPECT_EQ(trace.rows[0].at, Nanos{0});
}

TEST(Trace, AzureTimestampsBecomeSecondsSinceTheFirst) {
  const Trace trace = *parsed(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n"
      "2023-11-16 23:59:59.9000000,374,44\n"
      "2023-11-17 00:00:01.1005,396,109\n"
      "2023-11-17T00:00:02+00:00,10,0\n");
  EXPECT_EQ(trace.format, TraceFormat::kAzure);
  ASSERT_EQ(trace.rows.size(), 2);
  EXPECT_EQ(trace.skipped_rows, 1);
  EXPECT_EQ(trace.rows[0].at, Nanos{0});
  EXPECT_EQ(trace.rows[1].at, std::chrono::microseconds(1200500));
}

TEST(Trace, BurstGptRowsKeepTheirModelsAndLoseFailures) {
  const Trace trace = *parsed(
      "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log "
      "Type\n"
      "45,a,1.5,GPT-4,1087,230,1317,Conversation log\n"
      "5,b,0.2,ChatGPT,472,18,490,Conversation log\n"
      "50,c,0,ChatGPT,0,0,0,API log\n");
  EXPECT_EQ(trace.format, TraceFormat::kBurstGpt);
  EXPECT_EQ(trace.models, 2);
  EXPECT_EQ(trace.skipped_rows, 1);
  ASSERT_EQ(trace.rows.size(), 2);
  EXPECT_EQ(trace.rows[0].input_tokens, 472) << "sorted by time";
  EXPECT_EQ(trace.rows[0].model, 1);
  EXPECT_EQ(trace.rows[1].at, std::chrono::seconds(40));
}

TEST(Trace, MooncakeLinesHaveMillisecondsAndHashIds) {
  const Trace trace = *parsed(
      "{\"timestamp\": 1000, \"input_length\": 1025, \"output_length\": 52, \"hash_ids\": [0, 1, "
      "2]}\n\n"
      "{\"timestamp\": 1500.5, \"input_length\": 3, \"output_length\": 1}\n");
  EXPECT_EQ(trace.format, TraceFormat::kMooncake);
  ASSERT_EQ(trace.rows.size(), 2);
  EXPECT_THAT(trace.rows[0].hash_ids, ElementsAre(0, 1, 2));
  EXPECT_EQ(trace.rows[1].at, std::chrono::microseconds(500500));
}

TEST(Trace, AByteOrderMarkIsPassedOver) {
  EXPECT_TRUE(parsed("\xef\xbb\xbfinput_tokens,output_tokens\n1,1\n").ok());
}

TEST(Trace, ErrorsNameFileLineAndField) {
  EXPECT_THAT(error_of("input_tokens,output_tokens\n1,1\n5,x\n"),
              HasSubstr("trace 't.csv', line 3: output_tokens is 'x'"));
  EXPECT_THAT(error_of("arrival_s,input_tokens,output_tokens\n2,1,1\n1,1,1\n"),
              HasSubstr("line 3: arrival_s is smaller"));
  EXPECT_THAT(error_of("TIMESTAMP,ContextTokens,GeneratedTokens\n16.11.2023,1,1\n"),
              HasSubstr("line 2: TIMESTAMP is '16.11.2023'"));
  EXPECT_THAT(error_of("TIMESTAMP,ContextTokens\n"), HasSubstr("0 columns 'GeneratedTokens'"));
  EXPECT_THAT(error_of("{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 1, "
                       "\"hash_ids\": [1]}\n"),
              HasSubstr("line 1: 1 hash_ids, but 600 input tokens are 2 blocks of 512"));
}

TEST(Trace, HostileFilesAreErrors) {
  const std::string deep = "{\"timestamp\": " + std::string(1000000, '[') + "\n";
  for (const std::string& text : std::vector<std::string>{
           "",
           "\n\n",
           "hello\n",
           "input_tokens,output_tokens\n",
           "input_tokens,output_tokens\n1\n",
           "input_tokens,output_tokens\n1,2,3\n",
           "input_tokens,output_tokens\n0,1\n",
           "input_tokens,output_tokens\n-1,1\n",
           "input_tokens,output_tokens\n1,99999999999999999999\n",
           "input_tokens,output_tokens\n1.5,1\n",
           "input_tokens,input_tokens,output_tokens\n1,1,1\n",
           "arrival_s,input_tokens,output_tokens\nnan,1,1\n",
           "arrival_s,input_tokens,output_tokens\ninf,1,1\n",
           "arrival_s,input_tokens,output_tokens\n-1,1,1\n",
           "arrival_s,input_tokens,output_tokens\n1e300,1,1\n",
           "input_tokens,output_tokens,model_id\n1,1,9999999999\n",
           "input_tokens,output_tokens,hash_ids\n1,1,\n",
           "input_tokens,output_tokens,hash_ids\n1,1,1  2\n",
           "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-13-40 99:99:99,1,1\n",
           "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-01-01 00:00:00x,1,1\n",
           "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-01-01 -1:00:00,1,1\n",
           "Timestamp,Model,Request tokens,Response tokens\n1,m,0,0\n",
           "{",
           "{}\n",
           "{\"a\":}\n",
           "{\"timestamp\": \"1\", \"input_length\": 1, \"output_length\": 1}\n",
           "{\"timestamp\": 1e999, \"input_length\": 1, \"output_length\": 1}\n",
           "{\"timestamp\": 1, \"input_length\": 18446744073709551615, \"output_length\": 1}\n",
           "{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [\"a\"]}\n",
           "{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": 3}\n",
           deep,
           "{\"timestamp\xff\": 1}\n"}) {
    EXPECT_FALSE(parsed(text).ok()) << text.substr(0, 80);
  }
  EXPECT_LT(error_of("input_tokens,output_tokens\n" + std::string(1000000, 'x') + ",1\n").size(),
            500);
}

TEST(Trace, AForcedFormatDoesNotAcceptAnother) {
  EXPECT_FALSE(parsed("input_tokens,output_tokens\n1,1\n", TraceFormat::kAzure).ok());
  EXPECT_FALSE(parsed("input_tokens,output_tokens\n1,1\n", TraceFormat::kMooncake).ok());
  EXPECT_EQ(*parse_trace_format("burstgpt"), TraceFormat::kBurstGpt);
  EXPECT_FALSE(parse_trace_format("csv").ok());
}

TEST(Trace, MissingFilesAndFoldersAreErrors) {
  EXPECT_THAT(read_trace("/no/such/file", {}).error().message, HasSubstr("/no/such/file"));
  EXPECT_FALSE(read_trace(std::filesystem::temp_directory_path(), {}).ok());
}

class SharedTraces : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* shared = std::getenv("TANDEM_SHARED");
    folder_ = std::filesystem::path(shared == nullptr ? "../shared" : shared) / "traces";
    if (!std::filesystem::is_directory(folder_)) {
      const char* ci = std::getenv("CI");
      if (ci != nullptr && std::string_view(ci) == "true") {
        FAIL() << "TANDEM_SHARED has no traces";
      }
      GTEST_SKIP() << "the recorded traces are not here; set TANDEM_SHARED";
    }
  }
  Trace read(const std::string& name) { return *read_trace((folder_ / name).string(), {}); }
  std::filesystem::path folder_;
};

TEST_F(SharedTraces, AzureConversationsHaveTheirPublishedRowsAndMeans) {
  const Trace trace = read("azure_llm_2023_conv.csv");
  ASSERT_EQ(trace.rows.size(), 19366);
  int64_t input = 0;
  int64_t output = 0;
  for (const TraceRow& row : trace.rows) {
    input += row.input_tokens;
    output += row.output_tokens;
  }
  EXPECT_NEAR(static_cast<double>(input) / 19366, 1154.7, 0.1);
  EXPECT_NEAR(static_cast<double>(output) / 19366, 211.1, 0.1);
}

TEST_F(SharedTraces, PackedMooncakeRowsShareTheBlocksTheyShould) {
  const Trace trace = read("mooncake_synthetic.csv.gz");
  ASSERT_EQ(trace.rows.size(), 3993);
  std::unordered_set<int64_t> seen;
  int64_t references = 0;
  int64_t hits = 0;
  for (const TraceRow& row : trace.rows) {
    references += std::ssize(row.hash_ids);
    size_t run = 0;
    while (run < row.hash_ids.size() && seen.contains(row.hash_ids[run])) {
      ++run;
    }
    hits += static_cast<int64_t>(run);
    seen.insert(row.hash_ids.begin(), row.hash_ids.end());
  }
  EXPECT_EQ(references, 121877);
  EXPECT_EQ(seen.size(), 43924);
  EXPECT_EQ(hits, 77953);
}

TEST_F(SharedTraces, EveryFileIsRead) {
  int files = 0;
  for (const char* sub : {".", "lengths"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / sub)) {
      const std::string name = entry.path().filename().string();
      if (entry.is_regular_file() && name != "README.md" && !name.ends_with("_functions.csv")) {
        EXPECT_TRUE(read_trace(entry.path().string(), {}).ok()) << name;
        ++files;
      }
    }
  }
  EXPECT_GT(files, 10);
}

}  // namespace
}  // namespace tandem::workload
