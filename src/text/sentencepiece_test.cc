// SentencePiece models: where the space before a text goes, and that nothing of a text is lost
// beside special tokens.
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>

#include "text/test_vocabularies.h"
#include "text/tokenizer.h"

namespace tandem::text {
namespace {

using testing::TempFolder;
using Ids = std::vector<TokenId>;

constexpr EncodeOptions kParse{.add_special_tokens = false, .parse_special_tokens = true};
constexpr DecodeOptions kAll{.skip_special_tokens = false};

std::unique_ptr<Tokenizer> load(std::string_view model, const std::string& config) {
  const TempFolder folder;
  folder.write("tokenizer.model", model);
  folder.write("tokenizer_config.json", config);
  auto tokenizer = load_tokenizer(folder.path());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

Ids encode(const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.encode(text, kParse);
  EXPECT_TRUE(ids.ok()) << ids.error().message;
  return ids.ok() ? *ids : Ids{};
}

TEST(SentencePiece, NothingBehindASpecialTokenIsLost) {
  REQUIRE_SHARED_FOLDER(shared);
  const std::string model = testing::read_all(shared / "tokenizers/llama-2/tokenizer.model");
  const auto tokenizer = load(model, R"({"legacy": false})");
  ASSERT_NE(tokenizer, nullptr);
  for (TokenId id = 3; id < tokenizer->vocab_size(); ++id) {
    const std::string piece(tokenizer->token_bytes(id));
    if (piece.empty() || piece[0] != '>') continue;
    for (const std::string& text : {"<s>" + piece, "<s>" + piece.substr(1), "a</s>" + piece}) {
      EXPECT_EQ(tokenizer->decode(encode(*tokenizer, text), kAll), text);
    }
  }
  const std::string chat =
      "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Yo </s><s>[INST] Bye";
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, chat), kAll), chat);
}

TEST(SentencePiece, TheFirstSpaceIsWhereTheConfigPutsIt) {
  REQUIRE_SHARED_FOLDER(shared);
  const std::string model = testing::read_all(shared / "tokenizers/llama-2/tokenizer.model");
  const auto pieces = [&](const std::string& config, const std::string& text) {
    const auto tokenizer = load(model, config);
    std::string shown;
    for (const TokenId id : encode(*tokenizer, text)) {
      shown += "[" + std::string(tokenizer->token_bytes(id)) + "]";
    }
    return shown;
  };
  EXPECT_EQ(pieces("{}", "the<s>you"), "[ the][<s>][ you]");
  EXPECT_EQ(pieces(R"({"legacy": true})", " the"), "[ ][ the]");
  EXPECT_EQ(pieces(R"({"legacy": false})", "the<s>you"), "[ the][<s>][you]");
  EXPECT_EQ(pieces(R"({"legacy": false})", " the<s> you"), "[ the][<s>][ you]");
  EXPECT_EQ(pieces(R"({"legacy": false})", "  the"), "[ ][ the]");
  EXPECT_EQ(pieces(R"({"legacy": false})", "<s>the"), "[<s>][the]");
  EXPECT_EQ(pieces(R"({"legacy": false, "add_prefix_space": false})", "the<s> you"),
            "[the][<s>][ you]");
  EXPECT_EQ(pieces(R"({"add_prefix_space": false})", "the<s>you"), "[the][<s>][you]");
}

// A field of a protocol buffer: a message or text, a float, a number.
std::string field(int number, std::string_view bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} +
         std::string(bytes);
}
std::string field(int number, float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  std::string out(1, static_cast<char>(number << 3 | 5));
  for (int shift = 0; shift < 32; shift += 8)
    out.push_back(static_cast<char>(bits >> shift & 0xFF));
  return out;
}
std::string field(int number, int value) {
  return {static_cast<char>(number << 3), static_cast<char>(value)};
}

// A segmentation of a whole part, which a unigram model makes, may change anywhere when something
// stands before it.
TEST(SentencePiece, UnigramModelsKeepWhatStandsBehindASpecialToken) {
  std::string model;
  const auto add = [&](std::string_view piece, float score, int type) {
    model += field(1, field(1, piece) + field(2, score) + field(3, type));
  };
  add("<unk>", 0.0F, 2);
  add("<s>", 0.0F, 3);
  add("</s>", 0.0F, 3);
  for (const char* piece : {"\u2581", "a", "b", ">", "<", "u", "n", "k"}) add(piece, -5.0F, 1);
  for (const char* piece : {"k>a", ">a", "\u2581a", "\u2581>", "ab"}) add(piece, -2.0F, 1);
  model += field(2, field(3, 1));  // of the trainer: a unigram model
  const auto tokenizer = load(model, R"({"legacy": false})");
  ASSERT_NE(tokenizer, nullptr);
  for (const char* text : {"<s>>a", "<s>>", "<s>ab", "<s> ab", "<s>  >a", "<s>k>ab", "</s>>b>a"}) {
    EXPECT_EQ(tokenizer->decode(encode(*tokenizer, text), kAll), text);
  }
  EXPECT_EQ(encode(*tokenizer, "a"), encode(*tokenizer, " a"));
  const std::vector<TokenId> marked = {*tokenizer->id_of("\u2581a")};
  EXPECT_EQ(encode(*tokenizer, "a"), marked);
}

}  // namespace
}  // namespace tandem::text
