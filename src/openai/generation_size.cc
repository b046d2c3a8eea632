// How large the parts of an answer become, so that callers can write large ones elsewhere.
#include "openai/generation.h"

namespace tandem::openai {

size_t Generation::prompt_bytes_of(size_t prompt, std::span<const TokenEvent> events) const {
  constexpr size_t kScoreBytes = 32;  // a token's text, its log-probability, and what separates
  size_t bytes = 0;
  for (const TokenEvent& event : events) {
    if (event.kind == TokenEvent::Kind::kPrompt && event.prompt_logprobs != nullptr) {
      size_t scores = 0;
      for (const LogprobInfo& info : *event.prompt_logprobs) {
        scores += info.top.size() + 2;
      }
      bytes += scores * kScoreBytes * (echoes_ && streams_ ? n_ : 1);
    }
    if (streams_ && echoes_) {
      const size_t echo_bytes = prompts_[prompt].echo.size();
      const size_t choice = prompt * n_ + static_cast<size_t>(event.choice);
      bytes += event.kind == TokenEvent::Kind::kPrompt ? echo_bytes * n_
               : choices_[choice].echo_sent            ? 0
                                                       : echo_bytes;
    }
  }
  return bytes;
}

size_t Generation::body_bytes() const {
  constexpr size_t kFrameBytes = 256;  // names, reasons, numbers
  size_t bytes = kFrameBytes * choices_.size();
  for (size_t index = 0; index < choices_.size(); ++index) {
    const Choice& choice = choices_[index];
    const Prompt& prompt = prompts_[index / n_];
    bytes += choice.text.size() + choice.logprobs.bytes();
    bytes += prompt.echo.size() + prompt.echo_logprobs.bytes() + prompt.logprobs.size();
  }
  return bytes;
}

size_t Generation::held_bytes() const {
  size_t bytes = body_bytes();
  for (const Prompt& prompt : prompts_) {
    bytes += prompt.scored.size() * sizeof(TokenId);
  }
  return bytes;
}

}  // namespace tandem::openai
