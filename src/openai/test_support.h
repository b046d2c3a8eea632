// For tests of openai/ and api/: a tokenizer of bytes, a small chat template, and a served model.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "openai/generation_request.h"
#include "openai/model_directory.h"
#include "request/frontend.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem::openai {

// Ids 0 to 255 are the bytes; then come the special tokens and two words.
class ByteTokenizer final : public text::Tokenizer {
 public:
  static constexpr TokenId kBos = 256;    // "<s>", put before every text
  static constexpr TokenId kEos = 257;    // "</s>"
  static constexpr TokenId kHello = 258;  // "hello"
  static constexpr TokenId kWorld = 259;  // " world"
  static constexpr int32_t kVocabulary = 260;

  ByteTokenizer();
  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text,
                                                    text::EncodeOptions options) const override;
  [[nodiscard]] std::string_view token_bytes(TokenId id) const override;
  [[nodiscard]] bool is_special(TokenId id) const override { return id == kBos || id == kEos; }
  [[nodiscard]] std::optional<TokenId> id_of(std::string_view token) const override;
  [[nodiscard]] const text::TokenizerTraits& traits() const override { return traits_; }

 private:
  std::string bytes_;
  text::TokenizerTraits traits_;
};

// "[role]content" per message, "{tool names}" before them, and "[assistant]" at the end.
text::ChatTemplate small_chat_template();

// Called "tiny", alias "small"; 64 tokens of context, n up to 4.
ServedModel tiny_model();

// A ready front end that refuses every request. Borrows the model.
class ClosedFrontend final : public Frontend {
 public:
  explicit ClosedFrontend(const ServedModel& model) : model_(model) {}
  [[nodiscard]] const ServedModel& model() const override { return model_; }
  [[nodiscard]] ServingState state() const override { return ServingState::kReady; }
  [[nodiscard]] FrontendLoad load() const override { return {}; }
  Submission submit(Request /*request*/) override {
    return Error{ErrorCode::kUnavailable, "closed", ""};
  }
  void cancel(RequestId /*request*/) override {}
  void stop(RequestId /*request*/, int32_t /*choice*/) override {}

 private:
  const ServedModel& model_;
};

// All of the above, ready for parsing.
struct TestModel {
  ByteTokenizer tokenizer;
  text::ChatTemplate chat_template = small_chat_template();
  ServedModel model = tiny_model();
  ClosedFrontend frontend{model};
  ParseContext context{.model = model,
                       .tokenizer = tokenizer,
                       .chat_template = chat_template,
                       .defaults = {},
                       .limits = {},
                       .local_time = {}};
  ModelDirectory directory = served_by(frontend);

  // A directory with this model alone. It borrows the model and the front end.
  [[nodiscard]] ModelDirectory served_by(Frontend& any) const {
    return {std::vector<ModelServices>{{.frontend = any,
                                        .tokenizer = tokenizer,
                                        .chat_template = chat_template,
                                        .defaults = {}}},
            RequestLimits{},
            {}};
  }
};

// Reads a body's JSON and parses it for the one model of `context`.
Result<GenerationRequest> parse_generation(Endpoint endpoint, std::string_view body,
                                           const ParseContext& context);

TokenEvent token_event(TokenId token, int32_t choice = 0);
TokenEvent finish_event(FinishReason reason, int32_t choice = 0);
// One byte token for each byte of `text`.
std::vector<TokenEvent> text_events(std::string_view text);
// Delivers `text` and an end by length to the request's sink, as the request that has this id.
void deliver_answer(RequestId id, const Request& request, std::string_view text,
                    int32_t choice = 0);

}  // namespace tandem::openai
