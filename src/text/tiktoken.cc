#include "text/tiktoken.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "base/check.h"
#include "text/bpe_tokenizer.h"
#include "text/byte_level.h"
#include "text/json_fields.h"

namespace tandem::text {
namespace {

constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr int32_t kSpecialTokens = 256;
constexpr size_t kLongestTokenBytes = 4096;

int32_t base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return -1;
}

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) {
    return std::nullopt;
  }
  size_t padding = 0;
  while (padding < 2 && text.back() == '=') {
    text.remove_suffix(1);
    ++padding;
  }
  std::string bytes;
  uint32_t bits = 0;
  int32_t bit_count = 0;
  for (const char c : text) {
    const int32_t digit = base64_digit(c);
    if (digit < 0) {
      return std::nullopt;
    }
    bits = (bits << 6 | static_cast<uint32_t>(digit)) & 0xFFFFFF;
    bit_count += 6;
    if (bit_count >= 8) {
      bit_count -= 8;
      bytes.push_back(static_cast<char>(bits >> bit_count & 0xFF));
    }
  }
  return bytes;
}

struct Ranks {
  std::vector<std::string> tokens;  // by rank
  std::unordered_map<std::string_view, TokenId> ids;
};

std::string_view next_line(std::string_view& content) {
  const size_t end = content.find('\n');
  std::string_view line = content.substr(0, end);
  content.remove_prefix(end == std::string_view::npos ? content.size() : end + 1);
  if (line.ends_with('\r')) {
    line.remove_suffix(1);
  }
  return line;
}

struct RankedToken {
  std::string bytes;
  int64_t rank = 0;
};

std::optional<RankedToken> parse_line(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) {
    return std::nullopt;
  }
  RankedToken token;
  std::optional<std::string> bytes = decode_base64(line.substr(0, space));
  const char* end = line.data() + line.size();
  const auto [parsed, error] = std::from_chars(line.data() + space + 1, end, token.rank);
  if (!bytes || bytes->empty() || error != std::errc() || parsed != end) {
    return std::nullopt;
  }
  token.bytes = *std::move(bytes);
  return token;
}

Result<Ranks> read_ranks(std::string_view content, const std::string& file) {
  Ranks ranks;
  for (int64_t number = 1; !content.empty(); ++number) {
    const std::string_view line = next_line(content);
    if (line.empty()) {
      continue;
    }
    std::optional<RankedToken> token = parse_line(line);
    if (!token) {
      return bad_file(file, fmt::format("line {} is not \"base64 rank\"", number));
    }
    if (token->rank != static_cast<int64_t>(ranks.tokens.size()) || token->rank >= kMostTokens) {
      return bad_file(file, fmt::format("line {} has the rank {} where {} is next", number,
                                        token->rank, ranks.tokens.size()));
    }
    if (token->bytes.size() > kLongestTokenBytes) {
      return bad_file(file, fmt::format("line {} has a token of {} bytes (at most {})", number,
                                        token->bytes.size(), kLongestTokenBytes));
    }
    ranks.tokens.push_back(std::move(token->bytes));
  }
  for (size_t i = 0; i < ranks.tokens.size(); ++i) {
    if (!ranks.ids.emplace(ranks.tokens[i], static_cast<TokenId>(i)).second) {
      return bad_file(file, fmt::format("the token of rank {} is there twice", i));
    }
  }
  return ranks;
}

// The tokens behind the last rank, in the order of the published Llama-3 tokenizer.
std::vector<std::string> llama3_special_tokens() {
  std::vector<std::string> names = {"<|begin_of_text|>", "<|end_of_text|>"};
  int32_t reserved = 0;
  const auto add_reserved = [&](int32_t count) {
    for (int32_t i = 0; i < count; ++i) {
      names.push_back(fmt::format("<|reserved_special_token_{}|>", reserved++));
    }
  };
  add_reserved(4);
  names.insert(names.end(), {"<|start_header_id|>", "<|end_header_id|>"});
  add_reserved(1);
  names.emplace_back("<|eot_id|>");
  add_reserved(kSpecialTokens - static_cast<int32_t>(names.size()));
  return names;
}

std::vector<AddedToken> special_tokens(const TokenizerConfig& config, TokenId first) {
  std::vector<AddedToken> added;
  for (const std::string& name : llama3_special_tokens()) {
    const TokenId id = first + static_cast<TokenId>(added.size());
    // Later models of the family give names to reserved tokens.
    const auto renamed = std::find_if(config.added.begin(), config.added.end(),
                                      [&](const AddedToken& token) { return token.id == id; });
    added.push_back({.id = id,
                     .content = renamed == config.added.end() ? name : renamed->content,
                     .special = true});
  }
  return added;
}

}  // namespace

bool is_tiktoken(std::string_view content) {
  const std::string_view line = next_line(content);
  return line.size() < 2 * kLongestTokenBytes && parse_line(line).has_value();
}

Result<std::unique_ptr<Tokenizer>> load_tiktoken(std::string_view content, const std::string& file,
                                                 const TokenizerConfig& config) {
  ASSIGN_OR_RETURN(const Ranks ranks, read_ranks(content, file));
  auto parts = std::make_unique<BpeParts>();
  for (size_t i = 0; i < ranks.tokens.size(); ++i) {
    RETURN_IF_ERROR(
        parts->vocabulary.add(byte_level_encode(ranks.tokens[i]), static_cast<int64_t>(i), file));
    parts->bytes.add(ranks.tokens[i]);
  }
  const auto first_special = static_cast<TokenId>(ranks.tokens.size());
  parts->added = special_tokens(config, first_special);
  RETURN_IF_ERROR(merge_added_tokens(config, file, parts->vocabulary, parts->added));
  for (TokenId id = first_special; id < parts->vocabulary.size(); ++id) {
    parts->bytes.add(parts->vocabulary.text(id));
  }
  for (const AddedToken& token : parts->added) {
    if (token.special) {
      parts->bytes.set_special(token.id);
    }
  }
  Result<Regex> pattern = Regex::compile(kLlama3Pattern, "built in");
  CHECK(pattern.ok(), "{}", pattern.error().message);
  parts->pre_tokenizer = PreTokenizer::byte_level_split(*std::move(pattern));
  parts->model = std::make_unique<BpeModel>(parts->vocabulary, parts->bytes,
                                            BpeOptions{.byte_level = true, .ignore_merges = true});
  // Two tokens side by side merge if their concatenation is a token, and its rank is the merge's.
  for (size_t i = 0; i < ranks.tokens.size(); ++i) {
    const std::string_view token = ranks.tokens[i];
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto a = ranks.ids.find(token.substr(0, cut));
      const auto b = ranks.ids.find(token.substr(cut));
      if (a != ranks.ids.end() && b != ranks.ids.end()) {
        parts->model->add_merge(a->second, b->second, static_cast<TokenId>(i),
                                static_cast<uint32_t>(i));
      }
    }
  }
  SpecialFrame frame;
  frame.bos_id = first_special;
  frame.eos_id = first_special + 1;
  frame.prefix = {first_special};
  RETURN_IF_ERROR(apply_config(config, parts->vocabulary, frame));
  parts->prefix = std::move(frame.prefix);
  parts->suffix = std::move(frame.suffix);
  parts->traits = {
      .vocab_size = parts->vocabulary.size(), .bos_id = frame.bos_id, .eos_id = frame.eos_id};
  return BpeTokenizer::create(std::move(parts));
}

}  // namespace tandem::text
