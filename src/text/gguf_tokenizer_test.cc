#include "text/gguf_tokenizer.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "gguf/test_support.h"
#include "text/test_vocabularies.h"

namespace tandem::text {
namespace {

using gguf::FileBuilder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_vectors;
using testing::TempFolder;

class GgufVectors : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufVectors, EncodeToTheReferenceIds) {
  REQUIRE_SHARED_FOLDER(shared);
  const std::string name = GetParam();
  const auto tokenizer = load_tokenizer(shared / "tokenizers" / ("ggml-vocab-" + name + ".gguf"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const testing::Vectors vectors = read_vectors(shared, name);
  for (size_t i = 0; i < vectors.texts.size(); ++i) {
    const auto ids = (*tokenizer)->encode(vectors.texts[i], {.add_special_tokens = false});
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    EXPECT_EQ(*ids, vectors.ids[i]) << "vector " << i << ": " << vectors.texts[i];
    EXPECT_EQ((*tokenizer)->decode(vectors.ids[i], {}), vectors.texts[i]) << "vector " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Shared, GgufVectors, ::testing::Values("gpt-2", "mpt", "llama-spm"));

// Byte-level: letters, "ab", and two special tokens.
FileBuilder byte_level(const std::string& pre = "gpt-2") {
  FileBuilder file;
  file.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", pre);
  file.strings("tokenizer.ggml.tokens",
               std::vector<std::string>{"a", "b", "ab", "\xC4\xA0", "<|s|>", "<|e|>", "<tool>"});
  file.numbers("tokenizer.ggml.token_type", gguf::ValueType::kInt32,
               std::vector<int32_t>{1, 1, 1, 1, 3, 3, 4});
  file.strings("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  file.integer("tokenizer.ggml.bos_token_id", 4).integer("tokenizer.ggml.eos_token_id", 5);
  return file;
}

// SentencePiece: <unk>, BOS, bytes are left out; pieces merge by score.
FileBuilder sentencepiece(const std::vector<int32_t>& types = {2, 3, 1, 1, 1, 1, 4}) {
  FileBuilder file;
  file.string("tokenizer.ggml.model", "llama");
  file.strings("tokenizer.ggml.tokens",
               std::vector<std::string>{"<unk>", "<s>", "\xE2\x96\x81", "a", "b", "ab", "<tool>"});
  file.numbers("tokenizer.ggml.token_type", gguf::ValueType::kInt32, types);
  file.numbers("tokenizer.ggml.scores", gguf::ValueType::kFloat32,
               std::vector<float>{0, 0, -3, -4, -5, -1, -1000});
  file.integer("tokenizer.ggml.bos_token_id", 1);
  return file;
}

class GgufTokenizer : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Tokenizer>> load(const FileBuilder& file) {
    folder_.write("m.gguf", file.bytes());
    return load_tokenizer(path());
  }
  std::string error_of(const FileBuilder& file) {
    const auto tokenizer = load(file);
    return tokenizer.ok() ? "no error" : tokenizer.error().message;
  }
  [[nodiscard]] std::filesystem::path path() const { return folder_.path() / "m.gguf"; }

 private:
  TempFolder folder_;
};

TEST_F(GgufTokenizer, ReadsByteLevelVocabularies) {
  const auto tokenizer = load(byte_level());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_THAT(*(*tokenizer)->encode("abba <|s|>", {.parse_special_tokens = true}),
              ElementsAre(2, 1, 0, 3, 4));
  EXPECT_THAT(*(*tokenizer)->encode("a<tool>", {}), ElementsAre(0, 6));
  EXPECT_TRUE((*tokenizer)->is_special(5));
  EXPECT_FALSE((*tokenizer)->is_special(6));
  EXPECT_EQ((*tokenizer)->bos_id(), 4);
  EXPECT_EQ((*tokenizer)->eos_id(), 5);
}

TEST_F(GgufTokenizer, PutsSpecialTokensAroundATextAsTheFileSays) {
  const auto flagged = load(byte_level()
                                .boolean("tokenizer.ggml.add_bos_token", true)
                                .boolean("tokenizer.ggml.add_eos_token", true));
  ASSERT_TRUE(flagged.ok()) << flagged.error().message;
  EXPECT_THAT(*(*flagged)->encode("a", {}), ElementsAre(4, 0, 5));
  const auto llama3 = load(byte_level("llama-bpe"));
  ASSERT_TRUE(llama3.ok()) << llama3.error().message;
  EXPECT_THAT(*(*llama3)->encode("a", {}), ElementsAre(4, 0));
  const auto silent = load(byte_level("llama-bpe").boolean("tokenizer.ggml.add_bos_token", false));
  ASSERT_TRUE(silent.ok()) << silent.error().message;
  EXPECT_THAT(*(*silent)->encode("a", {}), ElementsAre(0));
}

TEST_F(GgufTokenizer, KnowsThePreTokenizersByName) {
  for (const char* name : {"default", "gpt-2", "llama-bpe", "qwen2", "tekken", "smollm"}) {
    EXPECT_EQ(error_of(byte_level(name)), "no error") << name;
  }
  EXPECT_THAT(error_of(byte_level("gemma9")),
              AllOf(HasSubstr("m.gguf: key 'tokenizer.ggml.pre' is 'gemma9'"),
                    HasSubstr("llama-bpe"), HasSubstr("--tokenizer")));
}

TEST_F(GgufTokenizer, ReadsSentencePieceVocabularies) {
  const auto tokenizer = load(sentencepiece());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_THAT(*(*tokenizer)->encode("ab a", {}), ElementsAre(1, 2, 5, 2, 3));
  EXPECT_THAT(*(*tokenizer)->encode("ab", {.add_special_tokens = false}), ElementsAre(2, 5));
  EXPECT_THAT(*(*tokenizer)->encode("a<tool>", {.add_special_tokens = false}),
              ElementsAre(2, 3, 6));
  const auto bare = load(sentencepiece().boolean("tokenizer.ggml.add_space_prefix", false));
  ASSERT_TRUE(bare.ok()) << bare.error().message;
  EXPECT_THAT(*(*bare)->encode("ab", {}), ElementsAre(1, 5));
}

TEST_F(GgufTokenizer, TakesTheNamedUnknownTokenOfFilesThatMarkNone) {
  const std::vector<int32_t> types = {3, 3, 1, 1, 1, 1, 4};
  EXPECT_THAT(error_of(sentencepiece(types)), HasSubstr("calls 0 tokens unknown"));
  const auto named = load(sentencepiece(types).integer("tokenizer.ggml.unknown_token_id", 0));
  ASSERT_TRUE(named.ok()) << named.error().message;
  EXPECT_THAT(*(*named)->encode("x", {.add_special_tokens = false}), ElementsAre(2, 0));
}

TEST_F(GgufTokenizer, NamesWhatIsWrong) {
  FileBuilder none;
  none.string("general.name", "x");
  EXPECT_THAT(error_of(none), HasSubstr("key 'tokenizer.ggml.model' is missing"));
  FileBuilder other;
  other.string("tokenizer.ggml.model", "bert");
  EXPECT_THAT(error_of(other), HasSubstr("'tokenizer.ggml.model' is 'bert'"));
  FileBuilder empty;
  empty.string("tokenizer.ggml.model", "gpt2");
  EXPECT_THAT(error_of(empty), HasSubstr("key 'tokenizer.ggml.tokens' is missing"));
  FileBuilder types = empty;
  types.strings("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
  FileBuilder no_pre = types;
  EXPECT_THAT(error_of(no_pre), HasSubstr("key 'tokenizer.ggml.pre' is missing"));
  types.numbers("tokenizer.ggml.token_type", gguf::ValueType::kInt32, std::vector<int32_t>{1});
  EXPECT_THAT(error_of(types), HasSubstr("has 1 entries, but there are 2 tokens"));
  FileBuilder merges = no_pre;
  merges.string("tokenizer.ggml.pre", "gpt-2");
  EXPECT_THAT(error_of(merges), HasSubstr("key 'tokenizer.ggml.merges' is missing"));
  merges.strings("tokenizer.ggml.merges", std::vector<std::string>{"a c"});
  EXPECT_THAT(error_of(merges), HasSubstr("has an entry 0, 'a c'"));
  FileBuilder far = no_pre;
  far.integer("tokenizer.ggml.bos_token_id", 7);
  EXPECT_THAT(error_of(far), HasSubstr("'tokenizer.ggml.bos_token_id' is 7"));
  FileBuilder text;
  text.string("tokenizer.ggml.model", "gpt2");
  text.strings("tokenizer.ggml.tokens", std::vector<std::string>{"\xFF"});
  EXPECT_THAT(error_of(text), HasSubstr("has a token 0 that is not valid UTF-8"));
  FileBuilder scores;
  scores.string("tokenizer.ggml.model", "llama");
  scores.strings("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
  EXPECT_THAT(error_of(scores), HasSubstr("key 'tokenizer.ggml.scores' has 0 entries"));
}

std::string rendered(const Result<ChatTemplate>& chat) {
  const auto messages = nlohmann::ordered_json::parse(R"([{"role":"user","content":"hi"}])");
  if (!chat.ok()) {
    return chat.error().message;
  }
  const auto text = chat->render({.messages = &messages});
  return text.ok() ? *text : text.error().message;
}

TEST_F(GgufTokenizer, GivesTheChatTemplate) {
  FileBuilder file = byte_level();
  file.string("tokenizer.chat_template",
              "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{{ eos_token }}");
  ASSERT_TRUE(load(file).ok());
  EXPECT_EQ(rendered(load_chat_template(path())), "<|s|>hi<|e|>");
  EXPECT_EQ(rendered(load_chat_template(path(), "{{ eos_token }}")), "<|e|>");
  ASSERT_TRUE(load(byte_level()).ok());
  const auto plain = load_chat_template(path());
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_TRUE(plain->is_plain());
  FileBuilder broken = byte_level();
  broken.string("tokenizer.chat_template", "{% for %}");
  ASSERT_TRUE(load(broken).ok());
  EXPECT_THAT(load_chat_template(path()).error().message,
              HasSubstr("m.gguf: key 'tokenizer.chat_template'"));
}

}  // namespace
}  // namespace tandem::text
