#include "bench/hostile_requests.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "bench/measuring.h"
#include "text/byte_level.h"

namespace tandem::bench {

namespace {

std::string repeated(std::string_view text, size_t count) {
  std::string out;
  out.reserve(text.size() * count);
  for (size_t i = 0; i < count; ++i) {
    out += text;
  }
  return out;
}

std::string completion(std::string_view prompt, std::string_view fields) {
  return fmt::format(R"({{"prompt":"{}",{}}})", prompt, fields);
}

// A list of `objects` objects of `keys` keys each, in a field that nobody asks for.
std::string with_objects(size_t objects, size_t keys) {
  std::string object = "{";
  for (size_t i = 0; i < keys; ++i) {
    object += fmt::format("{}\"{:x}\":0", i == 0 ? "" : ",", i);
  }
  object += "}";
  std::string body = R"({"prompt":"a","max_tokens":1,"x":[)";
  body.reserve((object.size() + 1) * objects + body.size() + 2);
  for (size_t i = 0; i < objects; ++i) {
    body += i == 0 ? "" : ",";
    body += object;
  }
  return body + "]}";
}

std::string stop_strings() {
  nlohmann::json stop;
  for (char first = 'a'; first < 'q'; ++first) {
    std::string text(1, first);
    for (size_t i = 1; i < 1024; ++i) {
      text += static_cast<char>('a' + (i * i + static_cast<size_t>(first) * i) % 26);
    }
    stop.push_back(text);
  }
  return completion("a", fmt::format(R"("max_tokens":16,"stop":{})", stop.dump()));
}

nlohmann::json tokenizer_json() {
  nlohmann::json vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[text::byte_level_encode(std::string(1, static_cast<char>(byte)))] = byte;
  }
  nlohmann::json merges = nlohmann::json::array();
  std::string letters = "a";
  for (int id = 256; id < 262; ++id) {
    merges.push_back(nlohmann::json::array({letters, letters}));
    letters += letters;
    vocabulary[letters] = id;
  }
  const nlohmann::json byte_level = {{"type", "ByteLevel"},
                                     {"add_prefix_space", false},
                                     {"trim_offsets", true},
                                     {"use_regex", true}};
  return {{"version", "1.0"},
          {"added_tokens",
           {{{"id", 262},
             {"content", "<|im_start|>"},
             {"single_word", false},
             {"lstrip", false},
             {"rstrip", false},
             {"normalized", false},
             {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", vocabulary},
            {"merges", merges}}}};
}

// `prompts` prompts of so many tokens, by their ids.
std::string token_ids(size_t prompts, size_t tokens) {
  const std::string prompt = "[" + repeated("7,", tokens - 1) + "7]";
  return fmt::format(R"({{"prompt":[{}{}],"max_tokens":1}})", repeated(prompt + ",", prompts - 1),
                     prompt);
}

// `body` in chunks of a byte.
std::string in_chunks(std::string_view body) {
  std::string out;
  out.reserve(body.size() * 6 + 5);
  for (const char byte : body) {
    out += "1\r\n";
    out += byte;
    out += "\r\n";
  }
  return out + "0\r\n\r\n";
}

}  // namespace

std::string head_of(const HostileRequest& request) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n{}\r\n{}\r\n", request.path,
      request.chunked ? "Transfer-Encoding: chunked"
                      : fmt::format("Content-Length: {}", request.body.size()),
      request.with_key ? fmt::format("Authorization: Bearer {}\r\n", kHostileKey) : "");
}

std::vector<HostileRequest> hostile_requests() {
  constexpr size_t kEchoTokens = 15'900;
  const std::string specials = repeated("<|im_start|>", kEchoTokens);
  const auto echo = [&](int logprobs, int n, bool stream, int tokens = 0) {
    return completion(specials,
                      fmt::format(R"("max_tokens":{},"echo":true,"logprobs":{},"n":{},"stream":{})",
                                  tokens, logprobs, n, stream));
  };
  const std::string word(31 * kMiB, 'a');
  const std::string many_messages =
      fmt::format(R"({{"max_tokens":1,"messages":[{}{{"role":"user","content":"b"}}]}})",
                  repeated(R"({"role":"user","content":"a"},)", 2000));
  return {
      {.name = "echo, logprobs 0, n 64, streamed", .body = echo(0, 64, true)},
      {.name = "echo, logprobs 0, n 64, whole", .body = echo(0, 64, false)},
      {.name = "echo, logprobs 20, n 3, whole", .body = echo(20, 3, false)},
      {.name = "echo, n 64 of 200 tokens, streamed", .body = echo(0, 64, true, 200)},
      {.name = "n 64 of 200 tokens, logprobs 20, streamed",
       .body = completion("a", R"("max_tokens":200,"logprobs":20,"n":64,"stream":true)")},
      {.name = "60 prompts of 65,000 token ids", .body = token_ids(60, 65'000)},
      {.name = "one object of 4,000 keys (40 KiB)", .body = with_objects(1, 4000)},
      {.name = "900 objects of 4,000 keys (28 MiB)", .body = with_objects(900, 4000)},
      {.name = "15,000 objects of 250 keys (25 MiB)", .body = with_objects(15'000, 250)},
      {.name = "a word of 31 MiB", .body = completion(word, R"("max_tokens":1)")},
      {.name = "the same to /tokenize",
       .path = "/tokenize",
       .body = completion(word, R"("return_token_strs":true)")},
      {.name = "16 stop strings of 1 KiB", .body = stop_strings()},
      {.name = "2,001 messages", .path = "/v1/chat/completions", .body = many_messages},
      {.name = "whole answers, unread",
       .path = "/tokenize",
       .body = completion(std::string(8 * kMiB, 'b'), R"("return_token_strs":true)"),
       .answer_is_read = false},
      {.name = "echo, logprobs 0, n 64, streamed, unread",
       .body = echo(0, 64, true),
       .answer_is_read = false},
      {.name = "31 MiB, left before the end",
       .body = completion(word, R"("max_tokens":1)"),
       .cut_bytes = 1},
      {.name = "5 MiB in chunks of a byte",
       .body = in_chunks(completion(std::string(5 * kMiB, 'a'), R"("max_tokens":1)")),
       .chunked = true},
      {.name = "31 MiB without a key",
       .body = completion(word, R"("max_tokens":1)"),
       .with_key = false},
  };
}

Result<std::unique_ptr<text::Tokenizer>> hostile_tokenizer() {
  std::string name = (std::filesystem::temp_directory_path() / "tandem-bench-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    return Error{ErrorCode::kIo, "cannot make a temporary folder; set TMPDIR", ""};
  }
  std::ofstream(std::filesystem::path(name) / "tokenizer.json") << tokenizer_json().dump();
  auto tokenizer = text::load_tokenizer(name);
  std::error_code ignored;
  std::filesystem::remove_all(name, ignored);
  return tokenizer;
}

}  // namespace tandem::bench
