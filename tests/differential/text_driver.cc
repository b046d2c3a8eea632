// Renders templates, tokenizes and detokenizes for tests: one JSON object a line on standard input,
// one a line as the answer on standard output.
//   {"template": text, "variables": {...}, "now": seconds}    -> {"text": ...}
//   {"folder": path, "encode": text, "special": b, "parse": b} -> {"ids": [...]}
//   {"folder": path, "decode": [...], "skip": b}               -> {"text": ..., "streamed": ...}
// What is refused gives {"error": message}. Nothing in the input is trusted but its shape.
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "jinja/template.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace tandem::text {
namespace {

using Json = nlohmann::ordered_json;

Json refusal(const Error& error) { return {{"error", error.message}}; }

Json render(const Json& request) {
  const auto parsed = jinja::Template::parse(request.at("template").get<std::string>());
  if (!parsed.ok()) return refusal(parsed.error());
  std::vector<jinja::Variable> variables;
  for (const auto& [name, value] : request.at("variables").items()) {
    variables.push_back({name, &value});
  }
  const std::chrono::local_seconds now{std::chrono::seconds(request.at("now").get<int64_t>())};
  const auto text = parsed->render(variables, now);
  return text.ok() ? Json{{"text", *text}} : refusal(text.error());
}

Json tokenize(const Tokenizer& tokenizer, const Json& request) {
  if (request.contains("encode")) {
    const auto ids = tokenizer.encode(request.at("encode").get<std::string>(),
                                      {.add_special_tokens = request.at("special").get<bool>(),
                                       .parse_special_tokens = request.at("parse").get<bool>()});
    return ids.ok() ? Json{{"ids", *ids}} : refusal(ids.error());
  }
  const auto ids = request.at("decode").get<std::vector<TokenId>>();
  const DecodeOptions options{.skip_special_tokens = request.at("skip").get<bool>()};
  IncrementalDetokenizer stream(tokenizer, options, {});
  std::string streamed;
  for (const TokenId id : ids) streamed += stream.push(id);
  streamed += stream.flush();
  return {{"text", tokenizer.decode(ids, options)}, {"streamed", streamed}};
}

class Driver {
 public:
  Json answer(const Json& request) {
    if (request.contains("template")) return render(request);
    const std::string folder = request.at("folder").get<std::string>();
    auto& tokenizer = tokenizers_[folder];
    if (tokenizer == nullptr) {
      auto loaded = load_tokenizer(folder);
      if (!loaded.ok()) return refusal(loaded.error());
      tokenizer = *std::move(loaded);
    }
    return tokenize(*tokenizer, request);
  }

 private:
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers_;
};

int run() {
  std::ios::sync_with_stdio(false);
  Driver driver;
  std::string line;
  while (std::getline(std::cin, line)) {
    const Json request = Json::parse(line, nullptr, false);
    if (!request.is_object()) {
      std::cerr << "text_driver: a line is no JSON object\n";
      return 2;
    }
    std::cout << driver.answer(request).dump(-1, ' ', true, Json::error_handler_t::replace)
              << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace tandem::text

int main() {
  try {
    return tandem::text::run();
  } catch (const std::exception& error) {
    std::cerr << "text_driver: " << error.what() << "\n";
    return 2;
  }
}
