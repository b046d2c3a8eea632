#include "model/model_folder.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "model/test_support.h"

namespace tandem::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kConfig =
    R"({"architectures":["LlamaForCausalLM"],"hidden_size":64,"intermediate_size":172,)"
    R"("num_hidden_layers":5,"num_attention_heads":8,"vocab_size":512,"eos_token_id":2})";

TEST(ModelFolder, JoinsTheEndTokensOfBothFiles) {
  const TempFolder folder;
  folder.write("config.json", kConfig);
  folder.write("generation_config.json",
               R"({"eos_token_id":[7,2],"do_sample":true,"temperature":0.6,"top_p":0.9,)"
               R"("top_k":-1,"repetition_penalty":1.05,"max_length":512,"max_new_tokens":99})");
  const auto opened = open_model_folder(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_THAT(opened->eos_token_ids, ElementsAre(2, 7));
  EXPECT_EQ(opened->generation.do_sample, true);
  EXPECT_EQ(opened->generation.temperature, 0.6F);
  EXPECT_EQ(opened->generation.top_p, 0.9F);
  EXPECT_EQ(opened->generation.top_k, 0);
  EXPECT_EQ(opened->generation.repetition_penalty, 1.05F);
  EXPECT_EQ(opened->generation.max_new_tokens, 99);
  EXPECT_FALSE(opened->generation.min_p);
}

// Without the rights of root while it lives.
class AsNobody {
 public:
  AsNobody() : dropped_(::geteuid() == 0 && ::seteuid(65534) == 0) {}
  ~AsNobody() {
    if (dropped_) {
      EXPECT_EQ(::seteuid(0), 0);
    }
  }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;

 private:
  const bool dropped_;
};

TEST(ModelFolder, AFolderThatMayNotBeReadIsNotCalledMissing) {
  namespace fs = std::filesystem;
  const TempFolder folder;
  fs::create_directories(folder.path() / "locked" / "m");
  folder.write("locked/config.json", kConfig);
  folder.write("locked/m/config.json", kConfig);
  fs::permissions(folder.path(), fs::perms(0755));
  fs::permissions(folder.path() / "locked", fs::perms::none);
  std::vector<std::string> problems;
  {
    const AsNobody without_rights;
    if (::geteuid() == 0) {
      GTEST_SKIP() << "root reads everything, and the rights of root cannot be dropped";
    }
    for (const char* name : {"locked", "locked/m"}) {
      const auto opened = open_model_folder(folder.path() / name);
      problems.push_back(opened.ok() ? "" : opened.error().message);
    }
  }
  fs::permissions(folder.path() / "locked", fs::perms::owner_all);
  EXPECT_THAT(
      problems,
      ElementsAre(
          AllOf(HasSubstr("locked/config.json' cannot be opened"), HasSubstr("Permission denied")),
          AllOf(HasSubstr("locked/m' cannot be opened"), HasSubstr("Permission denied"))));
}

TEST(ModelFolder, DoesWithoutAGenerationConfig) {
  const TempFolder folder;
  folder.write("config.json", kConfig);
  const auto opened = open_model_folder(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_THAT(opened->eos_token_ids, ElementsAre(2));
  EXPECT_FALSE(opened->generation.temperature);
}

TEST(ModelFolder, WhatAGenerationConfigSaysAndCannotBeUsedIsLeftOutWithAWarning) {
  for (const auto& [text, says] :
       {std::pair(R"("temperature":-1)", "temperature: is -1"),
        std::pair(R"("top_p":0.0)", "top_p: is 0.0"), std::pair(R"("top_p":"x")", "top_p: is"),
        std::pair(R"("top_k":1.5)", "top_k: is 1.5"), std::pair(R"("min_p":2)", "min_p: is 2"),
        std::pair(R"("eos_token_id":[2,512,7])", "eos_token_id: holds 512"),
        std::pair(R"("bos_token_id":-1)", "bos_token_id: is -1"),
        std::pair(R"("max_new_tokens":0)", "max_new_tokens: is 0"),
        std::pair(R"("do_sample":"yes")", "do_sample: is"),
        std::pair(R"("repetition_penalty":0)", "repetition_penalty: is 0")}) {
    const TempFolder folder;
    folder.write("config.json", kConfig);
    // The other values of the file count.
    folder.write("generation_config.json", "{\"pad_token_id\":-9," + std::string(text) + "}");
    const auto opened = open_model_folder(folder.path());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_THAT(opened->warnings,
                ElementsAre(AllOf(HasSubstr("generation_config.json: "), HasSubstr(says),
                                  HasSubstr("but must be"), HasSubstr("ignored"))));
    const GenerationDefaults& generation = opened->generation;
    EXPECT_FALSE(generation.temperature || generation.top_p || generation.min_p ||
                 generation.top_k || generation.repetition_penalty || generation.max_new_tokens ||
                 generation.bos_token_id || generation.do_sample)
        << text;
    const bool two = std::string(text).find('[') != std::string::npos;
    EXPECT_EQ(opened->eos_token_ids, two ? std::vector<TokenId>({2, 7}) : std::vector<TokenId>{2});
  }
}

TEST(ModelFolder, ManyBadEndTokensAreAFewWarnings) {
  const TempFolder folder;
  folder.write("config.json", kConfig);
  std::string ids;
  for (int i = 0; i < 1000; ++i) {
    ids += std::to_string(600 + i) + ",";
  }
  folder.write("generation_config.json", "{\"eos_token_id\":[" + ids + "3]}");
  const auto opened = open_model_folder(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_THAT(opened->eos_token_ids, ElementsAre(2, 3));
  EXPECT_EQ(opened->warnings.size(), 4U);
}

TEST(ModelFolder, TheTokenizersEndTokenJoinsThem) {
  const TempFolder folder;
  folder.write("config.json", kConfig);
  auto opened = open_model_folder(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  add_end_token(*opened, 1, "the tokenizer");
  add_end_token(*opened, 2, "the tokenizer");
  EXPECT_THAT(opened->eos_token_ids, ElementsAre(1, 2));
  EXPECT_TRUE(opened->warnings.empty());
  add_end_token(*opened, 512, "the tokenizer");  // added without a row in the embeddings
  EXPECT_THAT(opened->eos_token_ids, ElementsAre(1, 2));
  EXPECT_THAT(opened->warnings, ElementsAre(HasSubstr("has the id 512")));
}

TEST(ModelFolder, AGenerationConfigThatIsNoneNamesTheCure) {
  for (const auto& [text, says] :
       {std::pair("{", "not valid JSON"), std::pair("[]", "must be a JSON object")}) {
    const TempFolder folder;
    folder.write("config.json", kConfig);
    folder.write("generation_config.json", text);
    const auto opened = open_model_folder(folder.path());
    ASSERT_FALSE(opened.ok()) << text;
    EXPECT_THAT(opened.error().message, AllOf(HasSubstr("generation_config.json: "),
                                              HasSubstr(says), HasSubstr("delete it")));
  }
}

TEST(ModelFolder, SaysWhatToDoWithAHubId) {
  const auto opened = open_model_folder("some-org/Some-Model-1.1B");
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(opened.error().message, HasSubstr("tandem pull some-org/Some-Model-1.1B"));
  const auto absent = open_model_folder("/no/such/folder");
  ASSERT_FALSE(absent.ok());
  EXPECT_THAT(absent.error().message, HasSubstr("there is no folder '/no/such/folder'"));
}

TEST(ModelFolder, SaysWhatIsWrongWithAGgufFile) {
  const TempFolder folder;
  folder.write("model.gguf", "GGUF....");
  const auto file = open_model_folder(folder.path() / "model.gguf");
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().message, HasSubstr("model.gguf: has version"));
  const auto beside = open_model_folder(folder.path());
  ASSERT_FALSE(beside.ok());
  EXPECT_THAT(beside.error().message, HasSubstr("holds GGUF files and no config.json"));
}

TEST(ModelFolder, NamesWhatAFolderLacks) {
  const TempFolder folder;
  EXPECT_THAT(open_model_folder(folder.path()).error().message, HasSubstr("no config.json"));
  std::filesystem::create_directory(folder.path() / "snapshots");
  EXPECT_THAT(open_model_folder(folder.path()).error().message, HasSubstr("snapshots/REVISION"));
  folder.write("model.bin", "x");
  EXPECT_THAT(open_model_folder(folder.path() / "model.bin").error().message,
              HasSubstr("is a file, but not in GGUF; pass"));
}

TEST(Checkpoint, NamesWhatIsWrongWithFilesAndIndex) {
  const std::string shard = safetensors_of(std::vector<HandTensor>{{"a", {1}, {1.0F}}});
  struct Case {
    std::string index;
    std::string says;
  };
  for (const Case& bad : std::vector<Case>{
           {"", "not valid JSON"},
           {"{}", "weight_map: is missing or empty"},
           {R"({"weight_map":{}})", "weight_map: is missing or empty"},
           {R"({"weight_map":[1]})", "weight_map: is [1]"},
           {R"({"weight_map":{"a":3}})", "does not name a file"},
           {R"({"weight_map":{"a":"../secret"}})", "not the plain name"},
           {R"({"weight_map":{"a":"/etc/passwd"}})", "not the plain name"},
           {R"({"weight_map":{"a":".."}})", "not the plain name"},
           {R"({"weight_map":{"a":""}})", "not the plain name"},
           {R"({"weight_map":{"a":"none.safetensors"}})", "none.safetensors: cannot be opened"},
           {R"({"weight_map":{"a":"1.safetensors","b":"1.safetensors"}})",
            "says that 'b' is in 1.safetensors"},
           {R"({"weight_map":{"a":"empty.safetensors"}})", "empty or not a regular file"},
       }) {
    const TempFolder folder;
    folder.write("1.safetensors", shard);
    folder.write("empty.safetensors", "");
    folder.write("model.safetensors.index.json", bad.index);
    const auto checkpoint = Checkpoint::open(folder.path());
    ASSERT_FALSE(checkpoint.ok()) << bad.index;
    EXPECT_THAT(checkpoint.error().message, HasSubstr(bad.says)) << bad.index;
  }
}

TEST(Checkpoint, FindsTensorsInTheShardThatTheIndexNames) {
  const TempFolder folder;
  folder.write("1.safetensors",
               safetensors_of(std::vector<HandTensor>{{"a", {1}, {1.0F}}, {"b", {1}, {2.0F}}}));
  folder.write("2.safetensors", safetensors_of(std::vector<HandTensor>{{"b", {1}, {3.0F}}}));
  folder.write("model.safetensors.index.json",
               R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  ASSERT_NE(checkpoint->find("b"), nullptr);
  EXPECT_EQ(checkpoint->files()[static_cast<size_t>(checkpoint->find("b")->file)].name,
            "2.safetensors");
  EXPECT_EQ(checkpoint->find("c"), nullptr);
}

TEST(Checkpoint, HintsAtOtherFormats) {
  const TempFolder folder;
  EXPECT_THAT(Checkpoint::open(folder.path()).error().message, HasSubstr("complete?"));
  folder.write("pytorch_model.bin", "x");
  EXPECT_THAT(Checkpoint::open(folder.path()).error().message, HasSubstr("convert them"));
  folder.write("model-00001-of-00002.safetensors", "x");
  EXPECT_THAT(Checkpoint::open(folder.path()).error().message, HasSubstr("index missing"));
}

}  // namespace
}  // namespace tandem::model
