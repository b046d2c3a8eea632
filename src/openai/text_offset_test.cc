// "text_offset" of completions: the place of each token in the text of the answer. Compared with a
// decoding by trial, which knows which bytes made which character.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "openai/generation.h"
#include "openai/test_support.h"

namespace tandem::openai {
namespace {

// Some bytes make a whole character of `bytes`.
bool can_grow(std::string_view bytes) {
  for (const char next : {'\x80', '\x90', '\xA0'}) {
    std::string grown(bytes);
    for (int i = 0; i < 3; ++i) {
      grown += next;
      if (!find_invalid_utf8(grown)) {
        return true;
      }
    }
  }
  return false;
}

struct Decoded {
  std::string text;
  std::vector<int64_t> character_of;  // for each byte and for the end
  std::string unfinished;             // the bytes at the end that could become a character
};

Decoded decode_by_trial(std::string_view bytes) {
  Decoded out;
  int64_t characters = 0;
  for (size_t at = 0; at < bytes.size(); ++characters) {
    size_t length = 1;
    bool whole = !find_invalid_utf8(bytes.substr(at, 1));
    while (!whole && at + length < bytes.size() && can_grow(bytes.substr(at, length))) {
      whole = !find_invalid_utf8(bytes.substr(at, length + 1));
      if (!whole && !can_grow(bytes.substr(at, length + 1))) {
        break;
      }
      ++length;
    }
    const std::string_view sequence = bytes.substr(at, length);
    out.text += whole ? sequence : "\uFFFD";
    out.character_of.insert(out.character_of.end(), length, characters);
    at += length;
    if (!whole && at == bytes.size() && can_grow(sequence)) {
      out.unfinished = sequence;
    }
  }
  out.character_of.push_back(characters);
  return out;
}

class TextOffset : public ::testing::Test {
 protected:
  // The bytes that a token adds to the text.
  [[nodiscard]] std::string shown(TokenId token, bool skip_special) const {
    const bool hidden = skip_special && test_.tokenizer.is_special(token);
    return hidden ? "" : std::string(test_.tokenizer.token_bytes(token));
  }
  // The text of `before` and `tokens`, and the offset at which each token begins.
  struct Expected {
    Decoded decoded;
    std::vector<int64_t> offsets;
  };
  [[nodiscard]] Expected expect(const std::string& before, const std::vector<TokenId>& tokens,
                                bool skip_special) const {
    std::string bytes = before;
    std::vector<size_t> begins;
    for (const TokenId token : tokens) {
      begins.push_back(bytes.size());
      bytes += shown(token, skip_special);
    }
    Expected out{.decoded = decode_by_trial(bytes), .offsets = {}};
    for (size_t i = 0; i < tokens.size(); ++i) {
      // A token without text stands after the characters that are complete before it.
      const Decoded front = decode_by_trial(std::string_view(bytes).substr(0, begins[i]));
      out.offsets.push_back(shown(tokens[i], skip_special).empty()
                                ? front.character_of.back() - (front.unfinished.empty() ? 0 : 1)
                                : out.decoded.character_of[begins[i]]);
    }
    return out;
  }

  static TokenEvent scored(TokenId token) {
    TokenEvent event = token_event(token);
    event.logprobs = std::make_unique<LogprobInfo>();
    return event;
  }
  // The only choice of the answer with these tokens.
  Json answer(const std::string& fields, const std::vector<TokenId>& tokens) {
    auto request = parse_generation(Endpoint::kCompletions, fields, test_.context);
    EXPECT_TRUE(request.ok()) << request.error().message;
    Generation generation(*request, {.id = "id-1", .created_unix_seconds = 1}, test_.tokenizer);
    std::vector<TokenEvent> events;
    if (request->sampling.prompt_logprobs >= 0) {
      TokenEvent& prompt = events.emplace_back();
      prompt.kind = TokenEvent::Kind::kPrompt;
      prompt.prompt_logprobs =
          std::make_unique<std::vector<LogprobInfo>>(request->prompts[0].size() - 1);
    }
    for (const TokenId token : tokens) {
      events.push_back(scored(token));
    }
    events.push_back(finish_event(FinishReason::kLength));
    std::string out;
    std::ignore = generation.take(0, events, out);
    return Json::parse(generation.body())["choices"][0];
  }

  TestModel test_;
};

TEST_F(TextOffset, SpecialTokensThatAreNotShownTakeNoRoom) {
  const std::vector<TokenId> tokens = {ByteTokenizer::kBos, 'a', ByteTokenizer::kBos, 'b'};
  EXPECT_EQ(answer(R"({"prompt":"x","logprobs":0})", tokens)["logprobs"]["text_offset"],
            Json({0, 0, 1, 1}));
  EXPECT_EQ(answer(R"({"prompt":"x","logprobs":0,"skip_special_tokens":false})",
                   tokens)["logprobs"]["text_offset"],
            Json({0, 3, 4, 7}));
}

TEST_F(TextOffset, BytesThatShowAsReplacementCharactersTakeRoom) {
  const Json choice = answer(R"({"prompt":"x","logprobs":0})", {0x80, 0x81, 0xE4, 'a'});
  EXPECT_EQ(choice["text"], "\uFFFD\uFFFD\uFFFDa");
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json({0, 1, 2, 3}));
}

TEST_F(TextOffset, SpecialTokensWithinAnEchoedTextTakeRoom) {
  const Json choice = answer(R"({"prompt":"é</s>中","logprobs":0,"echo":true})", {'!'});
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json({0, 0, 0, 1, 5, 5, 5, 6}));
}

TEST_F(TextOffset, AgreesWithDecodingByTrial) {
  std::mt19937 random(7);
  const std::vector<TokenId> alphabet = {'a',
                                         'b',
                                         ByteTokenizer::kHello,
                                         ByteTokenizer::kBos,
                                         ByteTokenizer::kEos,
                                         0x80,
                                         0x9F,
                                         0xA9,
                                         0xB8,
                                         0xAD,
                                         0xC3,
                                         0xE4,
                                         0xE0,
                                         0xED,
                                         0xF0,
                                         0xF4,
                                         0xFF};
  const auto some_tokens = [&](uint32_t min_tokens) {
    std::vector<TokenId> tokens;
    for (uint32_t i = min_tokens + random() % 12; i > 0; --i) {
      tokens.push_back(alphabet[random() % alphabet.size()]);
    }
    return tokens;
  };
  for (int round = 0; round < 4000; ++round) {
    const bool echo = random() % 2 == 0;
    const bool skip_special = random() % 3 != 0;
    const bool stops = random() % 4 == 0;
    const std::vector<TokenId> prompt = some_tokens(1);
    std::vector<TokenId> tokens = some_tokens(0);
    const std::string fields = fmt::format(
        R"({{"prompt":[{}],"logprobs":0,"max_tokens":40,"echo":{},"skip_special_tokens":{}{}}})",
        fmt::join(prompt, ","), echo, skip_special, stops ? R"(,"stop":["ab","hellob"])" : "");
    SCOPED_TRACE(fmt::format("{} and {}", fields, fmt::join(tokens, ",")));
    const Json choice = answer(fields, tokens);

    const Expected asked = expect("", prompt, skip_special);
    const Expected given = expect(asked.decoded.unfinished, tokens, skip_special);
    const int64_t echo_chars = echo ? asked.decoded.character_of.back() : 0;
    std::vector<int64_t> offsets = echo ? asked.offsets : std::vector<int64_t>();
    for (const int64_t offset : given.offsets) {
      offsets.push_back(echo_chars + offset);
    }
    const std::string text = (echo ? asked.decoded.text : "") + given.decoded.text;
    const auto shown_text = choice["text"].get<std::string>();
    if (choice["finish_reason"] == "stop") {
      EXPECT_TRUE(text.starts_with(shown_text)) << shown_text;
      offsets.resize(choice["logprobs"]["tokens"].size());
    } else {
      EXPECT_EQ(shown_text, text);
    }
    ASSERT_EQ(choice["logprobs"]["text_offset"], Json(offsets)) << shown_text;
  }
}

}  // namespace
}  // namespace tandem::openai
