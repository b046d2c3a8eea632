// Model folders, small and made here: what the files may say, and what they may get wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "text/bpe_model.h"
#include "text/detokenizer.h"
#include "text/test_vocabularies.h"
#include "text/tokenizer.h"

namespace tandem::text {
namespace {

using nlohmann::json;
using testing::TempFolder;
using Ids = std::vector<TokenId>;

json small_file() {
  return json::parse(R"({
    "added_tokens": [
      {"id": 0, "content": "<unk>", "special": true},
      {"id": 1, "content": "<s>", "special": true},
      {"id": 2, "content": "</s>", "special": true},
      {"id": 12, "content": "<tool>", "special": false, "normalized": false}],
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": null,
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
      "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "<0xC3>": 3, "<0xA9>": 4, "▁": 5, "a": 6, "b": 7,
                "ab": 8, "▁a": 9, "▁ab": 10, "c": 11},
      "merges": ["a b", ["▁", "ab"], "▁ a"]}})");
}

Result<std::unique_ptr<Tokenizer>> load(const json& file, const json& config = nullptr) {
  const TempFolder folder;
  folder.write("tokenizer.json", file.dump());
  if (!config.is_null()) {
    folder.write("tokenizer_config.json", config.dump());
  }
  return load_tokenizer(folder.path());
}

std::unique_ptr<Tokenizer> good(const json& file, const json& config = nullptr) {
  auto tokenizer = load(file, config);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

Ids encoded_ids(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {}) {
  const auto ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.error().message;
  return ids.ok() ? *ids : Ids{};
}

TEST(TokenizerFiles, SmallFileMergesFallsBackAndDecodes) {
  const auto tokenizer = good(small_file());
  EXPECT_EQ(encoded_ids(*tokenizer, "ab ab"), (Ids{1, 10, 10}));
  EXPECT_EQ(encoded_ids(*tokenizer, "é"), (Ids{1, 5, 3, 4}));
  EXPECT_EQ(encoded_ids(*tokenizer, "zzc"), (Ids{1, 5, 0, 11}));  // no bytes for z; unknowns fuse
  EXPECT_EQ(encoded_ids(*tokenizer, ""), (Ids{1}));
  EXPECT_EQ(encoded_ids(*tokenizer, "a<tool>b"), (Ids{1, 9, 12, 5, 7}));
  EXPECT_EQ(encoded_ids(*tokenizer, "a</s>", {.parse_special_tokens = true}), (Ids{1, 9, 2}));
  EXPECT_EQ(tokenizer->decode(Ids{1, 10, 10, 3, 4}, {}), "ab abé");
  EXPECT_EQ(tokenizer->decode(Ids{1, 10}, {.skip_special_tokens = false}), "<s> ab");
  EXPECT_EQ(tokenizer->decode(Ids{3, 6, 99, -1}, {}), "\uFFFDa");
  EXPECT_TRUE(tokenizer->is_special(1));
  EXPECT_FALSE(tokenizer->is_special(12));
  EXPECT_FALSE(tokenizer->is_special(-1));
  EXPECT_EQ(tokenizer->id_of("<tool>"), 12);
  EXPECT_EQ(tokenizer->id_of("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->vocab_size(), 13);
}

TEST(TokenizerFiles, InvalidUtf8IsTheCallersMistake) {
  const auto tokenizer = good(small_file());
  const auto ids = tokenizer->encode("ab\xFF", {});
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(ids.error().message.find("byte 2"), std::string::npos);
}

TEST(TokenizerFiles, ConfigDecidesAboutBosAndEos) {
  const json names = {{"bos_token", {{"content", "<s>"}}}, {"eos_token", "</s>"}};
  json config = names;
  config["add_bos_token"] = false;
  config["add_eos_token"] = true;
  const auto tokenizer = good(small_file(), config);
  EXPECT_EQ(encoded_ids(*tokenizer, "a"), (Ids{9, 2}));
  EXPECT_EQ(encoded_ids(*tokenizer, "a", {.add_special_tokens = false}), (Ids{9}));
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  config["add_bos_token"] = true;  // the template does it already
  EXPECT_EQ(encoded_ids(*good(small_file(), config), "a"), (Ids{1, 9, 2}));
  config["bos_token"] = "<none>";
  const auto missing = load(small_file(), config);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("<none>"), std::string::npos);
}

TEST(TokenizerFiles, ConfigAddsTokens) {
  const json config = {
      {"added_tokens_decoder", {{"20", {{"content", "<|im_end|>"}, {"special", true}}}}},
      {"eos_token", "<|im_end|>"}};
  const auto tokenizer = good(small_file(), config);
  EXPECT_EQ(tokenizer->vocab_size(), 21);
  EXPECT_EQ(tokenizer->eos_id(), 20);
  EXPECT_EQ(encoded_ids(*tokenizer, "a<|im_end|>", {.parse_special_tokens = true}),
            (Ids{1, 9, 20}));
  EXPECT_EQ(tokenizer->decode(Ids{9, 15, 20}, {}), "a");
}

TEST(TokenizerFiles, SpecialTokensMapMakesTokensSpecial) {
  const TempFolder folder;
  folder.write("tokenizer.json", small_file().dump());
  folder.write("special_tokens_map.json",
               R"({"eos_token": {"content": "</s>"}, "additional_special_tokens": ["<tool>"]})");
  const auto tokenizer = load_tokenizer(folder.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->eos_id(), 2);
  EXPECT_TRUE((*tokenizer)->is_special(12));
}

TEST(TokenizerFiles, BrokenOnesGiveOneErrorThatNamesFileAndField) {
  const auto with = [](const char* pointer, const json& value) {
    json file = small_file();
    file[json::json_pointer(pointer)] = value;
    return file;
  };
  const std::pair<json, const char*> cases[] = {
      {json::array(), "array"},
      {with("/model", 3), "\"model\""},
      {with("/model/type", "Unigram"), "\"Unigram\""},
      {with("/model/vocab", json::array()), "model.vocab"},
      {with("/model/vocab/a", "6"), "model.vocab"},
      {with("/model/vocab/a", -1), "the id -1"},
      {with("/model/vocab/a", int64_t{1} << 60), "the id 1152921504606846976"},
      {with("/model/vocab/a", 18446744073709551615U), "model.vocab"},
      {with("/model/vocab/a", 7), "same id 7"},
      {with("/model/merges", "a b"), "model.merges"},
      {with("/model/merges/0", "a z"), "\"z\""},
      {with("/model/merges/0", "c c"), "\"cc\""},
      {with("/model/merges/0", "abc"), "entry 0"},
      {with("/model/merges/0", 5), "entry 0"},
      {with("/model/merges/0", {"a", "b", "c"}), "entry 0"},
      {with("/model/unk_token", "<none>"), "<none>"},
      {with("/model/dropout", 0.1), "dropout"},
      {with("/model/end_of_word_suffix", "</w>"), "</w>"},
      {with("/model/byte_fallback", "yes"), "byte_fallback"},
      {with("/added_tokens", 5), "added_tokens"},
      {with("/added_tokens/0/id", int64_t{1} << 40), "<unk>"},
      {with("/added_tokens/0/id", 7), "same id 7"},
      {with("/added_tokens/0/content", ""), "added_tokens"},
      {with("/added_tokens/0/content", nullptr), "content"},
      {with("/normalizer", {{"type", "Precompiled"}}), "\"Precompiled\""},
      {with("/pre_tokenizer", {{"type", "BertPreTokenizer"}}), "\"BertPreTokenizer\""},
      {with("/post_processor/type", "BertProcessing"), "\"BertProcessing\""},
      {with("/post_processor/special_tokens/<s>/ids/0", 4000), "4000"},
      {with("/post_processor/single", 1), "post_processor"},
      {with("/decoder", nullptr), "decoder"},
      {with("/decoder", {{"type", "CTC"}}), "\"CTC\""},
      {with("/decoder/decoders/3/stop", 1), "Strip"},
      {with("/decoder/decoders/3/start", int64_t{1} << 40), "Strip"},
  };
  for (const auto& [file, word] : cases) {
    const auto tokenizer = load(file);
    ASSERT_FALSE(tokenizer.ok()) << word;
    EXPECT_NE(tokenizer.error().message.find("tokenizer.json"), std::string::npos)
        << tokenizer.error().message;
    EXPECT_NE(tokenizer.error().message.find(word), std::string::npos) << tokenizer.error().message;
  }
}

TEST(TokenizerFiles, FilesThatAreNoJsonAreRefused) {
  for (const std::string& content :
       {std::string(), std::string("{"), std::string("{\"a\": \xFF}"), std::string(1'000'000, '['),
        "{\"model\": " + std::string(1000, '{'), std::string(100, '\0')}) {
    const TempFolder folder;
    folder.write("tokenizer.json", content);
    const auto tokenizer = load_tokenizer(folder.path());
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_NE(tokenizer.error().message.find("tokenizer.json"), std::string::npos);
  }
}

TEST(TokenizerFiles, BrokenConfigsAreRefused) {
  for (const char* config :
       {R"([])", R"({"add_bos_token": 1})", R"({"bos_token": 5})", R"({"bos_token": {"id": 5}})",
        R"({"added_tokens_decoder": []})", R"({"added_tokens_decoder": {"x": {"content": "a"}}})",
        R"({"added_tokens_decoder": {"99999999999": {"content": "a"}}})",
        R"({"added_tokens_decoder": {"7": {"content": "<x>"}}})",
        R"({"added_tokens_decoder": {"30": {"content": "<s>"}}})",
        R"({"additional_special_tokens": [4]})"}) {
    const auto tokenizer = load(small_file(), json::parse(config));
    ASSERT_FALSE(tokenizer.ok()) << config;
    EXPECT_NE(tokenizer.error().message.find("tokenizer_config.json"), std::string::npos)
        << tokenizer.error().message;
  }
}

TEST(TokenizerFiles, AFolderWithoutATokenizerIsAnError) {
  const TempFolder folder;
  const auto tokenizer = load_tokenizer(folder.path());
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(load_tokenizer(folder.path() / "absent").ok());
}

TEST(TokenizerFiles, BrokenTokenizerModelsAreRefused) {
  const std::string huge_rank = "IQ== 0\nIg== 99999999999999999999\n";
  for (const std::string& content :
       {std::string(), std::string("garbage"), std::string("IQ== 0\nIg== 5\n"),
        std::string("IQ== 0\nIQ== 1\n"), std::string("IQ== 0\n!!!! 1\n"), huge_rank,
        std::string("\x0a\xff\xff\xff\xff\x0f", 6), std::string(5000, '\n')}) {
    const TempFolder folder;
    folder.write("tokenizer.model", content);
    const auto tokenizer = load_tokenizer(folder.path());
    ASSERT_FALSE(tokenizer.ok()) << content;
    EXPECT_NE(tokenizer.error().message.find("tokenizer.model"), std::string::npos);
  }
}

// A tokenizer of a handful of texts, for what does not depend on encoding.
class FewTokens final : public Tokenizer {
 public:
  FewTokens(std::vector<std::string> bytes, int32_t stripped_spaces) : bytes_(std::move(bytes)) {
    traits_ = {.vocab_size = static_cast<int32_t>(bytes_.size()),
               .stripped_leading_spaces = stripped_spaces};
  }
  Result<std::vector<TokenId>> encode(std::string_view, EncodeOptions) const override {
    return invalid_argument("only decodes");
  }
  std::string_view token_bytes(TokenId id) const override {
    return bytes_.at(static_cast<size_t>(id));
  }
  bool is_special(TokenId id) const override { return id == 0; }
  std::optional<TokenId> id_of(std::string_view) const override { return std::nullopt; }
  const TokenizerTraits& traits() const override { return traits_; }

 private:
  std::vector<std::string> bytes_;
  TokenizerTraits traits_;
};

TEST(IncrementalDetokenizer, HoldsAnUnfinishedCharacterBack) {
  const FewTokens tokenizer({"<s>", "\xF0\x9F", "\x98", "\x80", "a"}, 0);
  IncrementalDetokenizer detokenizer(tokenizer, {}, {});
  EXPECT_EQ(detokenizer.push(1), "");
  EXPECT_EQ(detokenizer.push(0), "");  // a skipped token does not come between
  EXPECT_EQ(detokenizer.push(2), "");
  EXPECT_EQ(detokenizer.push(3), "\U0001F600");
  EXPECT_EQ(detokenizer.push(1), "");
  EXPECT_EQ(detokenizer.push(4), "\uFFFDa");
  EXPECT_EQ(detokenizer.push(1), "");
  EXPECT_EQ(detokenizer.flush(), "\uFFFD");
  EXPECT_EQ(detokenizer.flush(), "");
}

TEST(IncrementalDetokenizer, TheSpaceOfAContinuationIsKept) {
  const FewTokens tokenizer({"<s>", " a", " b"}, 1);
  IncrementalDetokenizer whole(tokenizer, {}, {});
  EXPECT_EQ(whole.push(1), "a");
  EXPECT_EQ(whole.push(2), " b");
  IncrementalDetokenizer after_bos(tokenizer, {}, Ids{0});
  EXPECT_EQ(after_bos.push(1), "a");
  IncrementalDetokenizer after_text(tokenizer, {}, Ids{0, 1});
  EXPECT_EQ(after_text.push(2), " b");
  IncrementalDetokenizer after_shown(tokenizer, {.skip_special_tokens = false}, Ids{0});
  EXPECT_EQ(after_shown.push(1), " a");
}

TEST(IncrementalDetokenizer, ACharacterBegunInThePromptIsCompleted) {
  const FewTokens tokenizer({"<s>", "x\xE4\xBD", "\xA0", "y"}, 0);
  IncrementalDetokenizer detokenizer(tokenizer, {}, Ids{3, 1, 0});
  EXPECT_EQ(detokenizer.push(2), "\u4F60");
}

TEST(BpeModel, LongPiecesMergeAsShortOnesDo) {
  // A vocabulary of all words of up to four of a and b, with merges in random order; the rule
  // itself is the reference.
  std::mt19937 random(9);
  Vocabulary vocabulary;
  std::vector<std::string> words;
  for (size_t length = 1; length <= 4; ++length) {
    for (uint32_t bits = 0; bits < (1U << length); ++bits) {
      std::string word;
      for (size_t i = 0; i < length; ++i) {
        word.push_back((bits >> i & 1) != 0 ? 'b' : 'a');
      }
      ASSERT_TRUE(vocabulary.add(word, static_cast<int64_t>(words.size()), "test").ok());
      words.push_back(word);
    }
  }
  TokenBytes bytes;
  for (const std::string& word : words) {
    bytes.add(word);
  }
  std::vector<std::pair<std::string, std::string>> merges;
  for (const std::string& a : words) {
    for (const std::string& b : words) {
      if (vocabulary.find(a + b) && random() % 3 != 0) {
        merges.emplace_back(a, b);
      }
    }
  }
  std::shuffle(merges.begin(), merges.end(), random);
  BpeModel model(vocabulary, bytes, {});
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto& [a, b] = merges[i];
    model.add_merge(*vocabulary.find(a), *vocabulary.find(b), *vocabulary.find(a + b),
                    static_cast<uint32_t>(i));
  }
  const auto by_rule = [&](const std::string& text) {
    std::vector<std::string> parts;
    for (const char c : text) {
      parts.emplace_back(1, c);
    }
    for (size_t rank = 0; rank < merges.size();) {
      bool merged = false;
      for (size_t i = 0; i + 1 < parts.size() && !merged; ++i) {
        if (parts[i] == merges[rank].first && parts[i + 1] == merges[rank].second) {
          parts[i] += parts[i + 1];
          parts.erase(parts.begin() + static_cast<ptrdiff_t>(i) + 1);
          merged = true;
        }
      }
      rank = merged ? 0 : rank + 1;
    }
    Ids ids;
    for (const std::string& part : parts) {
      ids.push_back(*vocabulary.find(part));
    }
    return ids;
  };
  BpeModel::Scratch scratch;
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (uint32_t i = random() % 150; i > 0; --i) {
      text.push_back(static_cast<char>('a' + random() % 2));
    }
    Ids ids;
    model.encode(text, scratch, ids);
    ASSERT_EQ(ids, by_rule(text)) << text;
  }
}

}  // namespace
}  // namespace tandem::text
