#include "model/made_tokenizer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"

namespace tandem::model {
namespace {

using nlohmann::ordered_json;

constexpr std::array<std::string_view, 4> kSpecials = {"<s>", "</s>", "<|im_start|>", "<|im_end|>"};

// How byte-level BPE spells a byte: printable ones stand for themselves, the others move up from
// U+0100, so that a space becomes U+0120.
std::array<std::string, 256> byte_spellings() {
  std::array<std::string, 256> spellings;
  char32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    append_utf8(printable ? char32_t{byte} : next++, spellings[byte]);
  }
  return spellings;
}

// Letters by how common they are in English, with rough weights; a leading space starts a word.
struct Letter {
  char letter;
  int64_t weight;
};
constexpr std::array<Letter, 26> kLetters = {
    {{'e', 127}, {'t', 91}, {'a', 82}, {'o', 75}, {'i', 70}, {'n', 67}, {'s', 63},
     {'h', 61},  {'r', 60}, {'d', 43}, {'l', 40}, {'c', 28}, {'u', 28}, {'m', 24},
     {'w', 24},  {'f', 22}, {'g', 20}, {'y', 20}, {'p', 19}, {'b', 15}, {'v', 10},
     {'k', 8},   {'j', 2},  {'x', 2},  {'q', 1},  {'z', 1}}};
constexpr int64_t kSpaceWeight = 190;

struct Merge {
  std::string left;
  std::string right;
  int64_t weight = 0;
};

// The more common first; equal ones by spelling, so that the order is the same everywhere.
void sort_merges(std::vector<Merge>& merges) {
  std::sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tie(b.weight, a.left, a.right) < std::tie(a.weight, b.left, b.right);
  });
}

// Pairs of letters, then pair + letter, then pair + pair: every spelling is made in one way only.
std::vector<Merge> common_merges(size_t count) {
  const std::string space = byte_spellings()[' '];
  std::vector<Merge> pairs;
  for (const Letter& second : kLetters) {
    pairs.push_back({space, {second.letter}, kSpaceWeight * second.weight});
    for (const Letter& first : kLetters) {
      pairs.push_back({{first.letter}, {second.letter}, first.weight * second.weight});
    }
  }
  sort_merges(pairs);
  std::vector<Merge> merges = pairs;
  if (merges.size() < count) {
    std::vector<Merge> triples;
    for (const Merge& pair : pairs) {
      for (const Letter& third : kLetters) {
        triples.push_back({pair.left + pair.right, {third.letter}, pair.weight * third.weight});
      }
    }
    sort_merges(triples);
    merges.insert(merges.end(), triples.begin(), triples.end());
  }
  if (merges.size() < count) {
    std::vector<Merge> fours;
    for (const Merge& first : pairs) {
      for (const Merge& second : pairs) {
        if (second.left != space) {
          fours.push_back(
              {first.left + first.right, second.left + second.right, first.weight * second.weight});
        }
      }
    }
    sort_merges(fours);
    merges.insert(merges.end(), fours.begin(), fours.end());
  }
  CHECK(merges.size() >= count, "{} merges wanted, {} known", count, merges.size());
  merges.resize(count);
  return merges;
}

}  // namespace

std::string made_tokenizer_json(int32_t vocabulary) {
  CHECK(vocabulary >= kMinMadeVocabulary && vocabulary <= kMaxMadeVocabulary, "vocabulary {}",
        vocabulary);
  ordered_json added = ordered_json::array();
  for (const std::string_view special : kSpecials) {
    added.push_back({{"id", added.size()},
                     {"content", special},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  // Pairs, not an object: looking a key up in an ordered object is linear.
  ordered_json::object_t ids;
  ids.reserve(static_cast<size_t>(vocabulary));
  const auto add = [&ids](std::string text) {
    const size_t id = ids.size();
    ids.emplace_back(std::move(text), id);
  };
  for (const std::string_view special : kSpecials) {
    add(std::string(special));
  }
  for (const std::string& spelling : byte_spellings()) {
    add(spelling);
  }
  ordered_json merges = ordered_json::array();
  for (const Merge& merge : common_merges(static_cast<size_t>(vocabulary - kMinMadeVocabulary))) {
    add(merge.left + merge.right);
    merges.push_back(merge.left + " " + merge.right);
  }
  const ordered_json byte_level = {{"type", "ByteLevel"},
                                   {"add_prefix_space", false},
                                   {"trim_offsets", true},
                                   {"use_regex", true}};
  ordered_json model = {{"type", "BPE"},
                        {"dropout", nullptr},
                        {"unk_token", nullptr},
                        {"continuing_subword_prefix", nullptr},
                        {"end_of_word_suffix", nullptr},
                        {"fuse_unk", false},
                        {"byte_fallback", false},
                        {"ignore_merges", false}};
  model["vocab"] = std::move(ids);
  model["merges"] = std::move(merges);
  ordered_json tokenizer = {{"version", "1.0"},          {"truncation", nullptr},
                            {"padding", nullptr},        {"added_tokens", std::move(added)},
                            {"normalizer", nullptr},     {"pre_tokenizer", byte_level},
                            {"post_processor", nullptr}, {"decoder", byte_level}};
  tokenizer["model"] = std::move(model);
  return tokenizer.dump(1);
}

std::string made_tokenizer_config_json(int32_t max_positions) {
  constexpr const char* kTemplate =
      "{% for message in messages %}"
      "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
      "{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
  const ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                               {"bos_token", "<s>"},
                               {"eos_token", "<|im_end|>"},
                               {"add_bos_token", false},
                               {"add_eos_token", false},
                               {"clean_up_tokenization_spaces", false},
                               {"model_max_length", max_positions},
                               {"chat_template", kTemplate}};
  return config.dump(1);
}

}  // namespace tandem::model
