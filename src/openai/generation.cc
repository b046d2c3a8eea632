#include "openai/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "openai/error_body.h"
#include "openai/json_output.h"

namespace tandem::openai {

namespace {

std::string_view finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "\"stop\"";
    case FinishReason::kLength:
      return "\"length\"";
    case FinishReason::kCancelled:
    case FinishReason::kError:
      break;  // errors instead of answers
  }
  return "\"error\"";
}

bool breaks_off(FinishReason reason) {
  return reason == FinishReason::kCancelled || reason == FinishReason::kError;
}

// A choice that ends so is not the answer that was asked for. The server cancels requests when it
// stops; after a client cancelled, no client reads the error.
Error broken_off(const FinishInfo& finish) {
  if (finish.reason == FinishReason::kCancelled) {
    return {ErrorCode::kUnavailable,
            "the server stopped before the answer was complete; send the request again", ""};
  }
  return {ErrorCode::kInternal, "the request failed: " + finish.error, ""};
}

std::string_view object_name(Endpoint endpoint, bool streams) {
  if (endpoint == Endpoint::kCompletions) {
    return "text_completion";
  }
  return streams ? "chat.completion.chunk" : "chat.completion";
}

std::string head_of(const GenerationRequest& request, const AnswerIdentity& identity) {
  std::string head = request.stream ? "data: {\"id\":" : "{\"id\":";
  append_untrusted_string(head, identity.id);
  head += R"(,"object":")";
  head += object_name(request.endpoint, request.stream);
  head += R"(","created":)";
  append_integer(head, identity.created_unix_seconds);
  head += R"(,"model":)";
  append_untrusted_string(head, request.model);
  head += R"(,"service_tier":")";
  head += request.service_tier;
  head += R"(","choices":[)";
  return head;
}

// Appends the usage without the brace that closes it. `cached_tokens` may not be known yet.
void append_usage(const Usage& usage, std::optional<int64_t> cached_tokens, std::string& out) {
  out += R"(,"usage":{"prompt_tokens":)";
  append_integer(out, usage.prompt_tokens);
  out += R"(,"total_tokens":)";
  append_integer(out, usage.prompt_tokens + usage.completion_tokens);
  out += R"(,"completion_tokens":)";
  append_integer(out, usage.completion_tokens);
  if (cached_tokens) {
    out += R"(,"prompt_tokens_details":{"cached_tokens":)";
    append_integer(out, *cached_tokens);
    out += '}';
  }
}

void append_millis(std::string& out, std::string_view name, Nanos time) {
  fmt::format_to(std::back_inserter(out), R"("{}":{:.3f})", name, to_millis(time));
}

// {"index":0,"slo":{...},"ttft_ms":...}: what did not happen is left out.
void append_report(std::string& out, size_t index, const ServiceReport& report) {
  out += R"({"index":)";
  append_integer(out, static_cast<int64_t>(index));
  if (report.ttft_target || report.tpot_target) {
    out += R"(,"slo":{)";
    if (report.ttft_target) {
      append_millis(out, "ttft_ms", *report.ttft_target);
      out += ',';
    }
    if (report.tpot_target) {
      append_millis(out, "tpot_ms", *report.tpot_target);
      out += ',';
    }
    out += report.slo_met ? R"("met":true})" : R"("met":false})";
  }
  if (report.forecast_ttft) {
    out += ',';
    append_millis(out, "forecast_ttft_ms", *report.forecast_ttft);
  }
  if (report.queue) {
    out += ',';
    append_millis(out, "queue_ms", *report.queue);
  }
  if (report.ttft) {
    out += ',';
    append_millis(out, "ttft_ms", *report.ttft);
    out += ',';
    append_millis(out, "mean_tbt_ms", report.mean_gap);
    out += ',';
    append_millis(out, "max_tbt_ms", report.most_gap);
  }
  out += ',';
  append_millis(out, "parked_ms", report.parked);
  fmt::format_to(std::back_inserter(out),
                 R"(,"attention_tokens":{{"device":{},"host":{}}},"hops":{},"preemptions":{}}})",
                 report.device_tokens, report.host_tokens, report.hops, report.preemptions);
}

}  // namespace

Generation::Generation(const GenerationRequest& request, AnswerIdentity identity,
                       const text::Tokenizer& tokenizer)
    : endpoint_(request.endpoint),
      streams_(request.stream),
      include_stop_(request.sampling.include_stop_string),
      stream_usage_(request.stream_usage),
      n_(static_cast<size_t>(request.n)),
      stop_token_ids_(request.sampling.stop_token_ids),
      head_(head_of(request, identity)),
      tail_(streams_ ? "}\n\n" : "}"),
      tokenizer_(tokenizer),
      echoes_(request.echo),
      prompt_logprobs_(request.prompt_logprobs),
      min_tokens_(request.sampling.min_tokens),
      discard_output_(request.discard_output),
      explain_(request.explain),
      honoured_(request.honoured),
      open_choices_(request.prompts.size() * n_) {
  if (request.stop_strings != nullptr) {
    stop_strings_ = request.stop_strings->strings();
  }
  const LogprobsStyle style{.endpoint = request.endpoint,
                            .top = request.sampling.logprobs,
                            .tokens_as_ids = request.tokens_as_ids};
  prompts_.reserve(request.prompts.size());
  choices_.reserve(open_choices_);
  for (const std::vector<TokenId>& prompt : request.prompts) {
    const bool scored = request.sampling.prompt_logprobs >= 0;
    prompts_.push_back({.tokens = std::ssize(prompt),
                        .echo = echoes_ ? request.prompt_texts[prompts_.size()] : "",
                        .echo_logprobs = LogprobsJson(tokenizer, style),
                        .scored = scored ? prompt : std::vector<TokenId>()});
    const text::IncrementalDetokenizer detokenizer(
        tokenizer, {.skip_special_tokens = request.skip_special_tokens}, prompt);
    for (size_t i = 0; i < n_; ++i) {
      choices_.push_back(
          {.detokenizer = detokenizer,
           .cutter = text::StopStringCutter(request.stop_strings,
                                            {.include_stop_string_in_output = include_stop_}),
           .logprobs = LogprobsJson(tokenizer, style),
           .text = "",
           .stop_reason = "null"});
    }
  }
}

std::vector<int32_t> Generation::take(size_t prompt, std::span<TokenEvent> events,
                                      std::string& out) {
  std::vector<int32_t> stopped;
  for (size_t i = 0; i < events.size() && !ended(); ++i) {
    TokenEvent& event = events[i];
    const size_t index = prompt * n_ + static_cast<size_t>(event.choice);
    CHECK(event.choice >= 0 && static_cast<size_t>(event.choice) < n_ && index < choices_.size(),
          "event for choice {} of prompt {}", event.choice, prompt);
    Choice& choice = choices_[index];
    if (event.kind == TokenEvent::Kind::kPrompt) {
      take_prompt(prompt, event, out);
      continue;
    }
    if (discard_output_ && event.kind == TokenEvent::Kind::kToken) {
      continue;
    }
    Piece piece;
    const bool was_finished = choice.finished;
    if (event.kind == TokenEvent::Kind::kToken) {
      if (was_finished) {
        continue;
      }
      if (take_token(choice, event, piece)) {
        stopped.push_back(event.choice);
      }
      const bool finish_follows =
          i + 1 < events.size() && events[i + 1].kind == TokenEvent::Kind::kFinish &&
          events[i + 1].choice == event.choice && !breaks_off(events[i + 1].finish->reason);
      if (finish_follows) {
        take_finish(choice, *events[++i].finish, piece);
      }
    } else {
      FinishInfo& finish = *event.finish;
      if (breaks_off(finish.reason) && !was_finished) {
        fail(broken_off(finish), out);
        break;
      }
      take_finish(choice, finish, piece);
    }
    if (!was_finished) {
      emit(index, piece, out);
    }
  }
  if (streams_ && !error_ && open_choices_ == 0) {
    append_last_chunks(out);
  }
  return stopped;
}

// It holds for all choices of the prompt.
void Generation::take_prompt(size_t index, const TokenEvent& event, std::string& out) {
  CHECK(index < prompts_.size() && !prompts_[index].scored.empty() &&
            event.prompt_logprobs != nullptr,
        "log-probabilities of prompt {} that were not asked for", index);
  Prompt& prompt = prompts_[index];
  if (prompt_logprobs_ >= 0) {
    prompt.logprobs =
        prompt_logprobs_json(tokenizer_, prompt.scored, *event.prompt_logprobs, prompt_logprobs_);
  }
  if (echoes_ && prompt.echo_logprobs.wanted()) {
    const int64_t chars =
        prompt.echo_logprobs.add_prompt(prompt.scored, *event.prompt_logprobs, prompt.echo);
    for (size_t choice = index * n_; choice < (index + 1) * n_; ++choice) {
      choices_[choice].echo_chars = chars;
    }
  }
  for (size_t choice = index * n_; choice < (index + 1) * n_ && echoes_ && streams_; ++choice) {
    append_echo_chunk(choice, out);
  }
  if (streams_) {
    prompt.echo_logprobs.release();
  } else {
    kept_bytes_ += static_cast<int64_t>(prompt.logprobs.size() + prompt.echo_logprobs.bytes());
  }
}

// True when the token completes a stop string.
bool Generation::take_token(Choice& choice, TokenEvent& event, Piece& piece) {
  ++choice.tokens;
  if (choice.logprobs.wanted() && event.logprobs != nullptr) {
    const size_t before = choice.logprobs.bytes();
    choice.logprobs.add(event.token, *event.logprobs,
                        choice.echo_chars + choice.detokenizer.offset_of(event.token));
    if (!streams_) {
      kept_bytes_ += static_cast<int64_t>(choice.logprobs.bytes() - before);
    }
  }
  const std::string text = choice.detokenizer.push(event.token);
  if (choice.tokens <= min_tokens_) {
    piece.text = choice.cutter.pass(text);
    return false;
  }
  text::StopCut cut = choice.cutter.push(text);
  piece.text = std::move(cut.text);
  if (!cut.stop) {
    return false;
  }
  choice.finished = true;
  choice.reason = FinishReason::kStop;
  choice.stop_reason.clear();
  append_string(choice.stop_reason, stop_strings_[*cut.stop]);
  piece.finishes = true;
  return true;
}

void Generation::take_finish(Choice& choice, FinishInfo& finish, Piece& piece) {
  CHECK(!choice.ended, "a choice of {} tokens ended twice", choice.tokens);
  choice.ended = true;
  choice.cached_tokens = finish.cached_tokens;
  choice.report = std::move(finish.report);
  --open_choices_;
  if (choice.finished) {
    return;
  }
  choice.finished = true;
  choice.reason = finish.reason;
  piece.finishes = true;
  if (discard_output_) {
    choice.reason = finish.reason == FinishReason::kStop ? FinishReason::kLength : finish.reason;
    return;
  }
  std::string rest;
  if (finish.reason == FinishReason::kStop && finish.stop_token >= 0) {
    // The model's own end of text is no reason that the client gave.
    if (std::ranges::find(stop_token_ids_, finish.stop_token) != stop_token_ids_.end()) {
      choice.stop_reason.clear();
      append_integer(choice.stop_reason, finish.stop_token);
    }
    if (include_stop_) {
      rest = choice.detokenizer.push(finish.stop_token);
    }
  }
  rest += choice.detokenizer.flush();
  if (choice.tokens <= min_tokens_) {
    piece.text += choice.cutter.pass(rest);
  } else {
    piece.text += choice.cutter.push(rest).text;
  }
  piece.text += choice.cutter.flush();  // nothing after a stop string
}

void Generation::emit(size_t index, const Piece& piece, std::string& out) {
  Choice& choice = choices_[index];
  if (!streams_) {
    choice.text += piece.text;
    kept_bytes_ += std::ssize(piece.text);
    return;
  }
  const bool chat = endpoint_ == Endpoint::kChat;
  if (chat && !std::exchange(choice.role_sent, true)) {
    append_role_chunk(index, out);
  }
  if (echoes_ && !choice.echo_sent) {
    append_echo_chunk(index, out);
  }
  out += head_;
  out += R"({"index":)";
  append_integer(out, static_cast<int64_t>(index));
  if (!chat) {
    out += R"(,"text":")";
    append_escaped(out, piece.text);
    out += '"';
  } else if (piece.finishes && piece.text.empty()) {
    out += R"(,"delta":{})";
  } else {
    out += R"(,"delta":{"content":")";
    append_escaped(out, piece.text);
    out += R"("})";
  }
  append_choice_end(choice, nullptr, out);
  out += ']';
  append_chunk_usage(index, choice.tokens, out);
  out += tail_;
}

// The prompt of a choice, with its log-probabilities when they are asked.
void Generation::append_echo_chunk(size_t index, std::string& out) {
  Choice& choice = choices_[index];
  choice.echo_sent = true;
  out += head_;
  out += R"({"index":)";
  append_integer(out, static_cast<int64_t>(index));
  out += R"(,"text":")";
  append_escaped(out, prompts_[index / n_].echo);
  out += R"(","logprobs":)";
  prompts_[index / n_].echo_logprobs.append_to(out, nullptr);
  out += R"(,"finish_reason":null}])";
  append_chunk_usage(index, 0, out);
  out += tail_;
}

// From "logprobs", those of `before` first, to the end of the choice.
void Generation::append_choice_end(Choice& choice, const LogprobsJson* before,
                                   std::string& out) const {
  out += R"(,"logprobs":)";
  choice.logprobs.append_to(out, before);
  choice.logprobs.clear();
  if (!choice.finished) {
    out += R"(,"finish_reason":null})";
    return;
  }
  out += R"(,"finish_reason":)";
  out += finish_name(choice.reason);
  out += R"(,"stop_reason":)";
  out += choice.stop_reason;
  out += '}';
}

void Generation::append_role_chunk(size_t index, std::string& out) const {
  out += head_;
  out += R"({"index":)";
  append_integer(out, static_cast<int64_t>(index));
  out += R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}])";
  append_chunk_usage(index, 0, out);
  out += tail_;
}

void Generation::append_chunk_usage(size_t index, int32_t completion_tokens,
                                    std::string& out) const {
  if (stream_usage_ == StreamUsage::kAtEnd) {
    out += R"(,"usage":null)";
  } else if (stream_usage_ == StreamUsage::kContinuous) {
    const Choice& choice = choices_[index];
    append_usage(
        {.prompt_tokens = prompts_[index / n_].tokens, .completion_tokens = completion_tokens},
        choice.ended ? std::optional<int64_t>(choice.cached_tokens) : std::nullopt, out);
    out += '}';
  }
}

void Generation::append_last_chunks(std::string& out) const {
  if (stream_usage_ != StreamUsage::kNone) {
    out += head_;
    out += ']';
    append_final_usage(out);
    out += tail_;
  }
  out += "data: [DONE]\n\n";
}

void Generation::append_final_usage(std::string& out) const {
  const Usage all = usage();
  append_usage(all, all.cached_tokens, out);
  if (explain_) {
    append_explanation(out);
  }
  out += '}';
}

// ,"tandem":{"class":...,"level":...,"honoured":...,"choices":[...]}. All choices have the same
// class and level.
void Generation::append_explanation(std::string& out) const {
  std::string choices;
  const ServiceReport* any = nullptr;
  for (size_t index = 0; index < choices_.size(); ++index) {
    const ServiceReport* report = choices_[index].report.get();
    if (report == nullptr) {
      continue;
    }
    any = report;
    choices += choices.empty() ? "" : ",";
    append_report(choices, index, *report);
  }
  if (any == nullptr) {
    return;
  }
  out += R"(,"tandem":{"class":")";
  out += class_name(any->service_class);
  out += R"(","level":)";
  append_integer(out, any->level);
  out += honoured_ ? R"(,"honoured":true)" : R"(,"honoured":false)";
  out += R"(,"choices":[)";
  out += choices;
  out += "]}";
}

void Generation::fail(Error error, std::string& out) {
  error_ = std::move(error);
  if (streams_) {
    out += "data: ";
    out += error_body(*error_);
    out += "\n\ndata: [DONE]\n\n";
  }
}

Usage Generation::usage() const {
  Usage usage;
  for (size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
    usage.prompt_tokens += prompts_[prompt].tokens;
    // The other choices share the prompt of the first, which shows what was there before.
    int32_t cached_tokens = choices_[prompt * n_].cached_tokens;
    for (size_t i = prompt * n_; i < (prompt + 1) * n_; ++i) {
      usage.completion_tokens += choices_[i].tokens;
      cached_tokens = std::min(cached_tokens, choices_[i].cached_tokens);
    }
    usage.cached_tokens += cached_tokens;
  }
  return usage;
}

std::string Generation::body() {
  CHECK(ended() && !error_ && !streams_, "body() of an answer that is streamed or not complete");
  const bool chat = endpoint_ == Endpoint::kChat;
  std::string out = head_;
  out.reserve(out.size() + body_bytes());
  for (size_t index = 0; index < choices_.size(); ++index) {
    Choice& choice = choices_[index];
    const Prompt& prompt = prompts_[index / n_];
    out += index == 0 ? R"({"index":)" : R"(,{"index":)";
    append_integer(out, static_cast<int64_t>(index));
    out += chat ? R"(,"message":{"role":"assistant","content":")" : R"(,"text":")";
    append_escaped(out, prompt.echo);
    append_escaped(out, choice.text);
    out += chat ? R"("})" : R"(")";
    if (prompt_logprobs_ >= 0) {
      out += R"(,"prompt_logprobs":)";
      out += prompt.logprobs;
    }
    append_choice_end(choice, &prompt.echo_logprobs, out);
  }
  out += ']';
  append_final_usage(out);
  out += '}';
  return out;
}

}  // namespace tandem::openai
