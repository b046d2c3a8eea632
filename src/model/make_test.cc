#include "model/make.h"

#include <gmock/gmock.h>

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "kernels/kernels.h"
#include "model/made_tokenizer.h"
#include "model/model_folder.h"
#include "model/random_tensor.h"
#include "model/report.h"
#include "model/test_support.h"

namespace tandem::model {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

MakeOptions small_options() {
  MakeOptions options{.config = *preset_config("tiny"), .seed = 3, .on_progress = {}};
  options.config.layers = 2;
  options.config.hidden = 96;
  options.config.intermediate = 200;
  options.config.vocabulary = 700;
  return options;
}

TEST(MakeModel, AModelPassesTheCheckOfItsHeadersUntilItIsBroken) {
  const TempFolder temp;
  const fs::path weights = temp.path() / "m" / "model.safetensors";
  ASSERT_TRUE(make_model(small_options(), temp.path() / "m").ok());
  ModelConfig config = open_model_folder(temp.path() / "m")->config;
  const auto problem = [&] {
    const Status checked =
        check_weights(temp.path() / "m", config, device::WeightFormat{.type = ElementType::kBF16},
                      device::host_formats());
    return checked.ok() ? std::string() : checked.error().message;
  };
  EXPECT_EQ(problem(), "");
  config.layers = 3;
  EXPECT_THAT(problem(), HasSubstr("tensor 'model.layers.2."));
  config.layers = 2;
  config.intermediate = 201;
  EXPECT_THAT(problem(), HasSubstr("but the model's config asks for [201, 96]"));
  config.intermediate = 200;
  fs::resize_file(weights, fs::file_size(weights) - 1);
  EXPECT_THAT(problem(), HasSubstr("is the file cut short?"));
  fs::resize_file(weights, 0);
  EXPECT_THAT(problem(), HasSubstr("is empty"));
  fs::remove(weights);
  EXPECT_THAT(problem(), HasSubstr("has neither model.safetensors nor"));
}

TEST(MakeModel, MakesWhatOpensLoadsAndHasTheShapeAskedFor) {
  const TempFolder temp;
  for (const Architecture architecture :
       {Architecture::kLlama, Architecture::kMistral, Architecture::kQwen2, Architecture::kQwen3}) {
    for (const ElementType type : {ElementType::kF32, ElementType::kBF16, ElementType::kF16}) {
      MakeOptions options = small_options();
      options.config.architecture = architecture;
      options.config.checkpoint_type = type;
      options.config.tied_embeddings = type == ElementType::kBF16;
      options.existing = ExistingFolder::kReplace;
      const Status made = make_model(options, temp.path() / "m");
      ASSERT_TRUE(made.ok()) << made.error().message;
      const auto folder = open_model_folder(temp.path() / "m");
      ASSERT_TRUE(folder.ok()) << folder.error().message;
      EXPECT_EQ(folder->config.architecture, architecture);
      EXPECT_EQ(folder->config.checkpoint_type, type);
      EXPECT_EQ(folder->config.qkv_bias, architecture == Architecture::kQwen2);
      EXPECT_EQ(folder->config.hidden, 96);
      EXPECT_EQ(folder->config.rms_epsilon, 1e-5F);
      EXPECT_EQ(folder->eos_token_ids, (std::vector<TokenId>{kMadeEos, kMadeTurnEnd}));
      const auto device = std::move(device::make_cpu_device({.threads = 2})).value();
      const auto weights =
          load_weights(temp.path() / "m", folder->config, *device,
                       {.format = device::WeightFormat{.type = ElementType::kBF16}});
      EXPECT_TRUE(weights.ok()) << weights.error().message;
    }
  }
}

TEST(MakeModel, TheSameSeedGivesTheSameBytesAndAnotherGivesOthers) {
  const TempFolder temp;
  MakeOptions options = small_options();
  ASSERT_TRUE(make_model(options, temp.path() / "a").ok());
  ASSERT_TRUE(make_model(options, temp.path() / "b/").ok());
  options.seed = 4;
  ASSERT_TRUE(make_model(options, temp.path() / "c").ok());
  int files = 0;
  for (const auto& entry : fs::directory_iterator(temp.path() / "a")) {
    const fs::path name = entry.path().filename();
    EXPECT_EQ(read_all(entry.path()), read_all(temp.path() / "b" / name)) << name;
    ++files;
  }
  EXPECT_EQ(files, 5);
  EXPECT_NE(read_all(temp.path() / "a/model.safetensors"),
            read_all(temp.path() / "c/model.safetensors"));
  EXPECT_FALSE(fs::exists(temp.path() / "a.partial"));
}

TEST(MakeModel, ShardsHoldTheSameWeightsAsOneFile) {
  const TempFolder temp;
  MakeOptions options = small_options();
  ASSERT_TRUE(make_model(options, temp.path() / "one").ok());
  options.shard_bytes = 150'000;
  ASSERT_TRUE(make_model(options, temp.path() / "many").ok());
  const auto report = describe_model(temp.path() / "many", int64_t{1} << 30);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_GT(report->files.size(), 3U);
  const auto device = std::move(device::make_cpu_device({.threads = 2})).value();
  const auto one = load_weights(temp.path() / "one", report->folder.config, *device, {});
  const auto many = load_weights(temp.path() / "many", report->folder.config, *device, {});
  ASSERT_TRUE(one.ok()) << one.error().message;
  ASSERT_TRUE(many.ok()) << many.error().message;
  ASSERT_EQ(one->memory.size(), many->memory.size());
  for (size_t i = 0; i < one->memory.size(); ++i) {
    EXPECT_EQ(std::memcmp(one->memory[i]->data(), many->memory[i]->data(),
                          static_cast<size_t>(one->memory[i]->bytes())),
              0);
  }
}

TEST(MakeModel, LeavesWhatIsInTheWay) {
  const TempFolder temp;
  temp.write("file", "x");
  MakeOptions options = small_options();
  EXPECT_THAT(make_model(options, temp.path() / "file").error().message, HasSubstr("is a file"));
  EXPECT_THAT(make_model(options, temp.path()).error().message, HasSubstr("not empty"));
  options.existing = ExistingFolder::kReplace;
  EXPECT_THAT(make_model(options, temp.path()).error().message, HasSubstr("not replaced"));
  EXPECT_TRUE(fs::exists(temp.path() / "file"));
  EXPECT_THAT(make_model(options, "/proc/tandem").error().message, HasSubstr("cannot be made"));
}

// A limit on the size of files stands in for a full disk.
TEST(MakeModel, AFullDiskIsAnErrorAndLeavesNothingBehind) {
  const TempFolder temp;
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {.rlim_cur = 100'000, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status made = make_model(small_options(), temp.path() / "m");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(made.error().message, HasSubstr("model.safetensors: cannot be written"));
  EXPECT_TRUE(fs::is_empty(temp.path()));
}

TEST(MakeModel, RefusesShapesThatNoServerWouldTake) {
  const TempFolder temp;
  MakeOptions options = small_options();
  options.config.vocabulary = 100;
  EXPECT_THAT(make_model(options, temp.path() / "m").error().message, HasSubstr("from 260"));
  options = small_options();
  options.config.kv_heads = 3;
  EXPECT_THAT(make_model(options, temp.path() / "m").error().message,
              HasSubstr("num_key_value_heads"));
  EXPECT_FALSE(fs::exists(temp.path() / "m"));
  EXPECT_THAT(preset_config("12B").error().message, HasSubstr("14B, 34B and 70B"));
}

TEST(MakeModel, PresetsHaveTheirModelsSizes) {
  EXPECT_EQ(parameter_count(*preset_config("1B")), 1100048384);
  EXPECT_EQ(parameter_count(*preset_config("3B")), 3212749824);
  EXPECT_EQ(parameter_count(*preset_config("8B")), 8030261248);
  EXPECT_EQ(parameter_count(*preset_config("7B")), 6738415616);
  EXPECT_EQ(parameter_count(*preset_config("Mistral-7B")), 7241732096);
  EXPECT_EQ(parameter_count(*preset_config("13B")), 13015864320);
  EXPECT_EQ(parameter_count(*preset_config("14B")), 14769689600);
  EXPECT_EQ(parameter_count(*preset_config("70B")), 68976648192);
  EXPECT_LT(parameter_count(*preset_config("tiny")), 5'000'000);
}

TEST(MadeTokenizer, HasOneIdPerTokenAndMergesOfKnownTokens) {
  for (const int32_t vocabulary : {260, 512, 32000}) {
    const nlohmann::json json = nlohmann::json::parse(made_tokenizer_json(vocabulary));
    const nlohmann::json& vocab = json["model"]["vocab"];
    ASSERT_EQ(vocab.size(), static_cast<size_t>(vocabulary));
    std::set<int> ids;
    for (const auto& [token, id] : vocab.items()) {
      ids.insert(id.get<int>());
    }
    EXPECT_EQ(ids.size(), static_cast<size_t>(vocabulary));
    EXPECT_EQ(*ids.rbegin(), vocabulary - 1);
    int next = kMinMadeVocabulary;
    for (const auto& merge : json["model"]["merges"]) {
      const auto text = merge.get<std::string>();
      const size_t space = text.find(' ');
      const std::string left = text.substr(0, space);
      const std::string right = text.substr(space + 1);
      ASSERT_TRUE(vocab.contains(left) && vocab.contains(right)) << text;
      ASSERT_EQ(vocab[left + right].get<int>(), next++);
    }
    EXPECT_EQ(next, vocabulary);
  }
}

TEST(RandomTensor, IsNormalWithTheMeanAndDeviationAskedFor) {
  const RandomTensor tensor(1, "x", {.mean = 1.0F, .deviation = 0.5F}, ElementType::kF32);
  std::vector<float> values(100'001);
  tensor.fill_chunk(3, std::as_writable_bytes(std::span(values)));
  double sum = 0.0;
  double squares = 0.0;
  int64_t within = 0;
  for (const float value : values) {
    sum += value;
    squares += (value - 1.0) * (value - 1.0);
    within += std::fabs(value - 1.0F) < 0.5F ? 1 : 0;
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 1.0, 0.01);
  EXPECT_NEAR(std::sqrt(squares / count), 0.5, 0.01);
  EXPECT_NEAR(static_cast<double>(within) / count, 0.683, 0.01);
}

TEST(DescribeModel, SaysWhatFits) {
  const TempFolder temp;
  ASSERT_TRUE(make_model(small_options(), temp.path() / "m").ok());
  const auto report = describe_model(temp.path() / "m", int64_t{1} << 30);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->checkpoint_bytes.at("BF16"), report->parameters * 2);
  EXPECT_EQ(report->tokenizer, "byte-level BPE (tokenizer.json)");
  EXPECT_TRUE(report->has_chat_template);
  ASSERT_EQ(report->needs.size(), 5U);  // two types, and three formats of fewer bits
  const MemoryNeed& need = report->needs.front();
  EXPECT_EQ(need.kv_tokens, ((int64_t{1} << 30) - need.weight_bytes) / need.kv_bytes_per_token);
  EXPECT_EQ(describe_model(temp.path() / "m", 1000)->needs.front().kv_tokens, 0);
}

}  // namespace
}  // namespace tandem::model
