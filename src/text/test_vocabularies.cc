#include "text/test_vocabularies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unordered_map>

#include "text/byte_level.h"

namespace tandem::text::testing {
namespace {

using nlohmann::json;

std::string from_base64(std::string_view text) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text.substr(0, text.find('='))) {
    bits = bits << 6 | static_cast<uint32_t>(kDigits.find(c));
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<char>(bits >> count & 0xFF));
    }
  }
  return bytes;
}

// The parts of a vocabulary-only GGUF file (version 3) that these tests need.
struct Gguf {
  std::vector<std::string> tokens;
  std::vector<std::string> merges;
  std::vector<int32_t> types;
};

class GgufReader {
 public:
  explicit GgufReader(std::string bytes) : bytes_(std::move(bytes)) {}

  Gguf read() {
    Gguf file;
    at_ = 8;
    take<uint64_t>();
    const auto keys = take<uint64_t>();
    for (uint64_t i = 0; i < keys; ++i) {
      const std::string key = take_string();
      const auto type = take<uint32_t>();
      if (key == "tokenizer.ggml.tokens") {
        file.tokens = take_strings();
      } else if (key == "tokenizer.ggml.merges") {
        file.merges = take_strings();
      } else if (key == "tokenizer.ggml.token_type") {
        take<uint32_t>();
        file.types.resize(take<uint64_t>());
        for (int32_t& value : file.types) {
          value = take<int32_t>();
        }
      } else {
        skip(type);
      }
    }
    return file;
  }

 private:
  template <class T>
  T take() {
    T value{};
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  std::string take_string() {
    const auto size = take<uint64_t>();
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  std::vector<std::string> take_strings() {
    take<uint32_t>();
    std::vector<std::string> strings(take<uint64_t>());
    for (std::string& string : strings) {
      string = take_string();
    }
    return strings;
  }
  void skip(uint32_t type) {
    static constexpr size_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == 8) {
      take_string();
    } else if (type == 9) {
      const auto element = take<uint32_t>();
      const auto count = take<uint64_t>();
      for (uint64_t i = 0; i < count; ++i) {
        skip(element);
      }
    } else {
      at_ += kBytes[type];
    }
  }

  std::string bytes_;
  size_t at_ = 0;
};

json split_sequence(const json& patterns) {
  json steps = json::array();
  for (const json& pattern : patterns) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"trim_offsets", true},
                   {"use_regex", false}});
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

json added_token(TokenId id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},   {"special", special}, {"lstrip", false},
          {"rstrip", false}, {"single_word", false}, {"normalized", false}};
}

json tokenizer_file(const json& pre_tokenizer) {
  return {{"version", "1.0"},
          {"added_tokens", json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", pre_tokenizer},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"byte_fallback", false}}}};
}

// The merges of a tiktoken file: every way to cut a token into two tokens, in the order of the
// tokens' ranks.
json file_from_tiktoken(const std::string& content, const json& patterns) {
  json file = tokenizer_file(split_sequence(patterns));
  std::vector<std::string> tokens;
  std::unordered_map<std::string, size_t> ranks;
  std::istringstream lines(content);
  std::string encoded;
  for (size_t rank = 0; lines >> encoded >> rank;) {
    tokens.push_back(from_base64(encoded));
    ranks.emplace(tokens.back(), rank);
  }
  json& vocab = file["model"]["vocab"] = json::object();
  json& merges = file["model"]["merges"] = json::array();
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    const std::string& token = tokens[rank];
    vocab[byte_level_encode(token)] = rank;
    std::vector<std::pair<size_t, size_t>> cuts;
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto a = ranks.find(token.substr(0, cut));
      const auto b = ranks.find(token.substr(cut));
      if (a != ranks.end() && b != ranks.end()) {
        cuts.emplace_back(a->second, b->second);
      }
    }
    std::sort(cuts.begin(), cuts.end());
    for (const auto& [a, b] : cuts) {
      merges.push_back({byte_level_encode(tokens[a]), byte_level_encode(tokens[b])});
    }
  }
  return file;
}

json file_from_gguf(const std::string& content, const json& patterns) {
  constexpr int32_t kControl = 3;
  constexpr int32_t kUserDefined = 4;
  const Gguf gguf = GgufReader(content).read();
  json file = tokenizer_file(split_sequence(patterns));
  json& vocab = file["model"]["vocab"] = json::object();
  file["model"]["merges"] = gguf.merges;
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    const int32_t type = gguf.types[id];
    if (type == kControl || type == kUserDefined) {
      file["added_tokens"].push_back(
          added_token(static_cast<TokenId>(id), gguf.tokens[id], type == kControl));
    } else {
      vocab[gguf.tokens[id]] = id;
    }
  }
  return file;
}

}  // namespace

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "tandem_text_XXXXXX").string();
  EXPECT_NE(mkdtemp(name.data()), nullptr) << name;
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void TempFolder::write(const std::string& name, std::string_view content) const {
  std::ofstream file(path_ / name, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  EXPECT_TRUE(file.good()) << name;
}

std::optional<std::filesystem::path> shared_folder() {
  const char* named = std::getenv("TANDEM_SHARED");
  const std::filesystem::path path = named != nullptr ? named : TANDEM_SHARED_DEFAULT;
  return std::filesystem::exists(path / "tokenizers") ? std::optional(path) : std::nullopt;
}

std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

Vectors read_vectors(const std::filesystem::path& shared, const std::string& name) {
  static constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  const std::filesystem::path folder = shared / "tokenizers";
  Vectors vectors;
  const std::string input = read_all(folder / ("ggml-vocab-" + name + ".gguf.inp"));
  std::string_view rest = input;
  for (size_t at = rest.find(kSeparator); at != std::string_view::npos;
       at = rest.find(kSeparator)) {
    vectors.texts.emplace_back(rest.substr(0, at));
    rest.remove_prefix(at + kSeparator.size());
  }
  std::istringstream lines(read_all(folder / ("ggml-vocab-" + name + ".gguf.out")));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream numbers(line);
    vectors.ids.emplace_back(std::istream_iterator<TokenId>(numbers),
                             std::istream_iterator<TokenId>());
  }
  EXPECT_EQ(vectors.texts.size(), 46U);
  EXPECT_EQ(vectors.ids.size(), 46U);
  return vectors;
}

std::unique_ptr<Tokenizer> load_vocabulary(const std::filesystem::path& shared,
                                           const std::string& name) {
  const std::filesystem::path folder = shared / "tokenizers";
  const TempFolder made;
  std::filesystem::path model = made.path();
  const json patterns = json::parse(read_all(folder / "pretokenizers.json"));
  if (name == "gpt-2") {
    model = folder / "gpt-2-hf";
  } else if (name == "llama-spm") {
    model = folder / "llama-2";
  } else if (name == "llama-bpe") {
    json file =
        file_from_tiktoken(read_all(folder / "llama-3" / "tokenizer.model"), patterns[name]);
    file["model"]["ignore_merges"] = true;
    file["added_tokens"] = {added_token(128000, "<|begin_of_text|>", true),
                            added_token(128001, "<|end_of_text|>", true),
                            added_token(128006, "<|start_header_id|>", true),
                            added_token(128007, "<|end_header_id|>", true),
                            added_token(128009, "<|eot_id|>", true)};
    made.write("tokenizer.json", file.dump());
  } else if (name == "qwen2") {
    json file = file_from_tiktoken(read_all(folder / "qwen2" / "qwen.tiktoken"), patterns[name]);
    file["normalizer"] = {{"type", "NFC"}};
    file["added_tokens"] = {added_token(151643, "<|endoftext|>", true),
                            added_token(151644, "<|im_start|>", true),
                            added_token(151645, "<|im_end|>", true)};
    made.write("tokenizer.json", file.dump());
  } else {
    const json file =
        file_from_gguf(read_all(folder / ("ggml-vocab-" + name + ".gguf")), patterns[name]);
    made.write("tokenizer.json", file.dump());
  }
  Result<std::unique_ptr<Tokenizer>> tokenizer = load_tokenizer(model);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

}  // namespace tandem::text::testing
