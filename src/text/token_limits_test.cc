// Texts with a limit on their tokens: the same ids or an error, and early.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/thread_time.h"
#include "text/sentencepiece_normalizer.h"
#include "text/test_vocabularies.h"
#include "text/token_count_bound.h"
#include "text/tokenizer.h"

namespace tandem::text {
namespace {

std::unique_ptr<Tokenizer> load_folder(const std::filesystem::path& folder) {
  Result<std::unique_ptr<Tokenizer>> tokenizer = load_tokenizer(folder);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return std::move(tokenizer).value();
}

// Runs of few different parts, where bounds are tight and tokens are long.
std::string repetitive_text(std::mt19937& random) {
  static const std::vector<std::string> kParts = {
      " ",      "a",       "\n",     "=",      "----",
      "<s>",    "\u2581",  "hello ", "\u4e2d", "\xf0\x9f\x98\x80",
      "\u00e9", "e\u0301", "1",      "  ",     "the",
      "\t",     "\u200b",  "ACGT",   "</s>",   "\u1e9b\u0323"};
  std::string text;
  for (uint32_t i = 1 + random() % 6; i > 0; --i) {
    const std::string& part = kParts[random() % kParts.size()];
    for (uint32_t times = random() % 60; times > 0; --times) {
      text += part;
    }
  }
  return text;
}

void expect_limits_hold(const Tokenizer& tokenizer, const std::string& text, std::mt19937& random) {
  const EncodeOptions options{.add_special_tokens = random() % 2 == 0,
                              .parse_special_tokens = random() % 2 == 0};
  const auto all = tokenizer.encode(text, options);
  ASSERT_TRUE(all.ok()) << all.error().message;
  const int64_t count = std::ssize(*all);
  for (const int64_t limit : {count, count + 1, count - 1, count / 2, int64_t{0}}) {
    EncodeOptions limited = options;
    limited.max_tokens = limit;
    const auto ids = tokenizer.encode(text, limited);
    if (limit >= count) {
      ASSERT_TRUE(ids.ok()) << ids.error().message << "; limit " << limit << ", " << text;
      EXPECT_EQ(*ids, *all);
    } else {
      ASSERT_FALSE(ids.ok()) << "limit " << limit << " of " << count << ": " << text;
      EXPECT_EQ(ids.error().code, ErrorCode::kPayloadTooLarge);
    }
  }
}

TEST(TokenLimits, NoTextThatFitsIsRefusedAndNoOtherTokenized) {
  REQUIRE_SHARED_FOLDER(shared);
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  for (const char* name : {"gpt-2", "llama-bpe", "llama-spm", "qwen2", "deepseek-llm", "mpt"}) {
    tokenizers.push_back(testing::load_vocabulary(shared, name));
  }
  tokenizers.push_back(load_folder(shared / "tokenizers" / "llama-2"));
  tokenizers.push_back(load_folder(shared / "tokenizers" / "llama-3"));
  std::mt19937 random(5);
  for (const std::unique_ptr<Tokenizer>& tokenizer : tokenizers) {
    ASSERT_NE(tokenizer, nullptr);
    for (int round = 0; round < 150; ++round) {
      expect_limits_hold(*tokenizer, repetitive_text(random), random);
    }
    for (const std::string& text : testing::read_vectors(shared, "llama-bpe").texts) {
      expect_limits_hold(*tokenizer, text, random);
    }
  }
}

// One long word is the text that takes most time and memory.
TEST(TokenLimits, RefusingTakesFarLessThanTokenizing) {
  REQUIRE_SHARED_FOLDER(shared);
  for (const char* name : {"llama-2", "llama-3"}) {
    const auto tokenizer = load_folder(shared / "tokenizers" / name);
    const Nanos begin = thread_time();
    EXPECT_TRUE(tokenizer->encode(std::string(1 << 20, 'a'), {}).ok());
    const Nanos tokenized = thread_time();
    const auto refused = tokenizer->encode(std::string(1 << 20, 'a'), {.max_tokens = 8192});
    EXPECT_FALSE(refused.ok());
    EXPECT_LT((thread_time() - tokenized) * 3, tokenized - begin) << name;
  }
}

TEST(TokenCountBound, CountsTheByteThatNeedsMostTokens) {
  TokenCountBound bound;
  EXPECT_EQ(bound.min_tokens("abc"), 0);
  bound.add("aab");
  bound.add("b");
  EXPECT_EQ(bound.min_tokens(""), 0);
  EXPECT_EQ(bound.min_tokens("aaaaa"), 3);
  EXPECT_EQ(bound.min_tokens("bbbb"), 4);
  EXPECT_EQ(bound.min_tokens("ababab"), 3);
  EXPECT_EQ(bound.min_tokens("aaab"), 2);
  EXPECT_EQ(bound.min_tokens("xxxxxxxx"), 0);  // in no token
}

TEST(SentencePieceNormalizer, IsReadFromTheModelsFile) {
  const auto model = [](std::string_view spec) {
    std::string bytes = "\x0a\x02hi\x1a";  // a piece, then the normalizer
    bytes += static_cast<char>(spec.size());
    return bytes.append(spec);
  };
  EXPECT_TRUE(keeps_every_byte(model(std::string_view("\x0a\x01x\x20\x00", 5))));
  EXPECT_TRUE(keeps_every_byte(model(std::string_view("\x12\x00\x20\x00", 4))));
  EXPECT_FALSE(keeps_every_byte(model(std::string_view("\x12\x01x\x20\x00", 5))));  // a map
  EXPECT_FALSE(keeps_every_byte(model("\x20\x01")));
  EXPECT_FALSE(keeps_every_byte(model("")));
  EXPECT_FALSE(keeps_every_byte(""));
  EXPECT_FALSE(keeps_every_byte("\x1a\x05\x20"));  // cut off
  EXPECT_FALSE(keeps_every_byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"));
}

}  // namespace
}  // namespace tandem::text
