#include "options/option_json.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "options/option_values.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;

struct RunOptions {
  int32_t sequences = 256;
  int64_t blocks = 0;
  uint64_t seed = 7;
  std::optional<double> share;
  Nanos timeout = 1500ms;
  std::string host = "localhost";
  std::vector<std::string> keys;
  bool quiet = false;
};

OptionTable run_table(RunOptions& run) {
  return {{.name = "max-num-seqs",
           .value = values::whole(run.sequences, values::WholeRange{1, 1024}),
           .recorded = Recorded::kAlways},
          {.name = "num-kv-blocks",
           .value = values::whole_if_given(run.blocks, values::WholeRange{1, 1000}),
           .key = "kv_blocks",
           .recorded = Recorded::kAlways},
          {.name = "seed", .value = values::whole(run.seed), .recorded = Recorded::kAlways},
          {.name = "share",
           .value = values::real_if_given(run.share, 0, 1),
           .recorded = Recorded::kLater},
          {.name = "timeout", .value = values::duration(run.timeout), .recorded = Recorded::kLater},
          {.name = "host", .value = values::text(run.host)},
          {.name = "api-key", .value = values::texts(run.keys), .secret = true},
          {.name = "quiet", .value = values::switch_on(run.quiet), .recorded = Recorded::kLater}};
}

nlohmann::ordered_json json_of(RunOptions run) {
  nlohmann::ordered_json json;
  write_options(run_table(run), json);
  return json;
}

TEST(OptionJson, ShowsEveryOptionAndNoSecret) {
  EXPECT_EQ(json_of({}).dump(),
            R"({"max_num_seqs":256,"kv_blocks":null,"seed":7,"share":null,"timeout":"1500ms",)"
            R"("host":"localhost","api_key":null,"quiet":false})");
  RunOptions run;
  run.keys = {"sk-first", "sk-second"};
  run.share = 0.25;
  const std::string shown = json_of(run).dump();
  EXPECT_NE(shown.find(R"("api_key":"***")"), std::string::npos) << shown;
  EXPECT_NE(shown.find(R"("share":0.25)"), std::string::npos) << shown;
  EXPECT_EQ(shown.find("sk-"), std::string::npos) << shown;
}

TEST(OptionJson, ARecordGivesBackWhatBelongsToTheRun) {
  const RunOptions recorded{.sequences = 12,
                            .blocks = 40,
                            .seed = std::numeric_limits<uint64_t>::max(),
                            .share = 0.5,
                            .timeout = 2us,
                            .host = "elsewhere",
                            .keys = {"sk-first"},
                            .quiet = true};
  RunOptions replayed;
  const Status read =
      read_recorded_options(nlohmann::json::parse(json_of(recorded).dump()), run_table(replayed));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(replayed.sequences, 12);
  EXPECT_EQ(replayed.blocks, 40);
  EXPECT_EQ(replayed.seed, recorded.seed);
  EXPECT_EQ(replayed.share, 0.5);
  EXPECT_EQ(replayed.timeout, 2us);
  EXPECT_TRUE(replayed.quiet);
  EXPECT_EQ(replayed.host, "localhost") << "a replay's own";
  EXPECT_TRUE(replayed.keys.empty());
}

TEST(OptionJson, EarlierRecordsLackLaterOptions) {
  RunOptions run;
  const auto read = [&run](const char* text) {
    const Status status = read_recorded_options(nlohmann::json::parse(text), run_table(run));
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_EQ(read(R"({"max_num_seqs":3,"kv_blocks":9,"seed":0,"more":1})"), "");
  EXPECT_EQ(run.timeout, 1500ms);
  EXPECT_NE(read(R"({"max_num_seqs":3,"seed":0})").find("kv_blocks is missing"), std::string::npos);
  EXPECT_NE(read(R"({"max_num_seqs":3,"kv_blocks":null,"seed":0})").find("kv_blocks is missing"),
            std::string::npos);
}

TEST(OptionJson, WrongValuesOfARecordAreNamedBeforeMissingOnes) {
  RunOptions run;
  const Status read =
      read_recorded_options(nlohmann::json::parse(R"({"quiet":3})"), run_table(run));
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("quiet"), std::string::npos) << read.error().message;
}

TEST(OptionJson, WrongValuesOfARecordAreNamed) {
  for (const char* wrong : {"0", "1025", "1.5", "true", "[]", "{}", "[1]", "-1", "1e30", "\"x\"",
                            "18446744073709551615"}) {
    RunOptions run;
    const std::string text =
        std::string(R"({"kv_blocks":9,"seed":0,"max_num_seqs":)") + wrong + "}";
    const Status read = read_recorded_options(nlohmann::json::parse(text), run_table(run));
    ASSERT_FALSE(read.ok()) << wrong;
    EXPECT_NE(read.error().message.find("configuration is broken: max_num_seqs: "),
              std::string::npos)
        << read.error().message;
    EXPECT_EQ(run.sequences, 256);
  }
}

}  // namespace
}  // namespace tandem
