#include "text/gguf_pre_tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

namespace tandem::text {
namespace {

struct Recipe {
  std::vector<std::string_view> names;
  std::vector<std::string_view> patterns;  // applied one after the other
  bool ignore_merges = false;
  bool adds_bos = false;
  bool nfc = false;
};

constexpr std::string_view kWordsOfLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kWordsOfQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kWordsOfTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all = {
      {.names = {"default"},
       .patterns = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {.names = {"gpt-2", "mpt", "olmo"}, .patterns = {kGpt2Pattern}},
      {.names = {"llama-bpe", "llama3", "llama-v3"},
       .patterns = {kWordsOfLlama3},
       .ignore_merges = true,
       .adds_bos = true},
      {.names = {"smaug-bpe", "dbrx"}, .patterns = {kWordsOfLlama3}},
      {.names = {"qwen2", "deepseek-r1-qwen"}, .patterns = {kWordsOfQwen2}, .nfc = true},
      {.names = {"tekken", "pixtral"},
       .patterns = {kWordsOfTekken},
       .ignore_merges = true,
       .adds_bos = true},
      {.names = {"smollm", "starcoder", "refact", "command-r"},
       .patterns = {R"(\p{N})", kGpt2Pattern}}};
  return all;
}

}  // namespace

Result<NamedPreTokenizer> named_pre_tokenizer(std::string_view name, std::string_view where) {
  std::vector<std::string_view> known;
  const Recipe* recipe = nullptr;
  for (const Recipe& each : recipes()) {
    known.insert(known.end(), each.names.begin(), each.names.end());
    if (std::ranges::find(each.names, name) != each.names.end()) {
      recipe = &each;
    }
  }
  if (recipe == nullptr) {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("{} is '{}', a pre-tokenizer that is not supported; known are {}. Name "
                    "the model's original folder, with its tokenizer.json, by --tokenizer",
                    where, name.substr(0, 80), fmt::join(known, ", ")),
        {}};
  }
  using nlohmann::json;
  json steps = json::array();
  for (const std::string_view pattern : recipe->patterns) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  NamedPreTokenizer result{.cut = {},
                           .normalizer = {},
                           .ignore_merges = recipe->ignore_merges,
                           .adds_bos = recipe->adds_bos};
  ASSIGN_OR_RETURN(result.cut,
                   PreTokenizer::parse({{"type", "Sequence"}, {"pretokenizers", steps}}, where));
  if (recipe->nfc) {
    ASSIGN_OR_RETURN(result.normalizer, Normalizer::parse({{"type", "NFC"}}, where));
  }
  return result;
}

}  // namespace tandem::text
