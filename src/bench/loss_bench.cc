#include "bench/loss_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/bell.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/exit_code.h"
#include "engine/engine.h"
#include "node/config_json.h"
#include "node/policy_choice.h"
#include "node/scheduled_model.h"
#include "text/tokenizer.h"

namespace tandem::bench {
namespace {

using TokenTexts = std::vector<std::vector<TokenId>>;

// Gathers the tokens of every request, and the losses of all prompts.
class LossSink final : public TokenSink {
 public:
  explicit LossSink(size_t requests) : texts(requests) {}
  void deliver(std::vector<TokenEvent> events) override {
    for (TokenEvent& event : events) {
      if (event.kind == TokenEvent::Kind::kToken) {
        texts[static_cast<size_t>(event.tag)].push_back(event.token);
      } else if (event.kind == TokenEvent::Kind::kPrompt) {
        for (const LogprobInfo& info : *event.prompt_logprobs) {
          loss -= static_cast<double>(info.logprob);
          ++scored;
        }
      }
    }
  }

  TokenTexts texts;
  double loss = 0;
  int64_t scored = 0;
};

struct LossRow {
  std::string format;
  int64_t weight_bytes = 0;
  int64_t scored = 0;
  double loss = 0;     // mean, nats a token
  std::string config;  // effective, one JSON object
};

// A loaded model that requests can be run on.
class LoadedRun {
 public:
  static Result<std::unique_ptr<LoadedRun>> open(const NodeOptions& options) {
    auto run = std::make_unique<LoadedRun>();
    run->options_ = options;
    choose_plain_policy(run->options_);
    ASSIGN_OR_RETURN(SoleModel opened, open_model(run->options_, run->clock_));
    run->opened_ = std::make_unique<SoleModel>(std::move(opened));
    ASSIGN_OR_RETURN(run->loaded_,
                     load_model(run->model(), {}, [bell = &run->bell_] { bell->ring(); }));
    ASSIGN_OR_RETURN(
        ScheduledModel scheduled,
        complete_model(run->options_, run->model(), *run->loaded_, run->bell_, run->clock_, {}));
    run->scheduled_ = std::make_unique<ScheduledModel>(std::move(scheduled));
    return run;
  }

  [[nodiscard]] const PlannedModel& model() const { return opened_->model; }
  [[nodiscard]] int64_t weight_bytes() const { return loaded_->weights.bytes(); }
  [[nodiscard]] std::string config() const { return effective_config_json(options_, model()); }

  void run(std::vector<Request> requests, const std::shared_ptr<LossSink>& sink) {
    EngineConfig config = engine_config(options_, model(), scheduled_->profile.get());
    config.prefix_caching = PrefixCaching::kOff;
    Engine engine(config, {.executor = *loaded_->executor,
                           .policy = *scheduled_->policy.step,
                           .clock = clock_,
                           .observer = observer_});
    EngineInputs inputs;
    for (Request& request : requests) {
      request.sink = sink;
      request.sink_tag = inputs.size();
      inputs.emplace_back(Engine::make_arrival(RequestId{static_cast<int64_t>(inputs.size()) + 1},
                                               std::move(request), clock_.now(),
                                               model().plan.block_tokens));
    }
    while (engine.advance(clock_.now(), inputs).activity == EngineActivity::kStepRunning) {
      bell_.wait();
    }
  }

 private:
  class NoObserver final : public observe::EngineObserver {
   public:
    void on_step(const observe::StepRecord&) override {}
    void on_gauges(const observe::EngineGauges&) override {}
    void on_request(const observe::RequestRecord&) override {}
  };

  NodeOptions options_;
  SteadyClock clock_;
  Bell bell_;
  NoObserver observer_;
  std::unique_ptr<SoleModel> opened_;
  std::unique_ptr<LoadedModel> loaded_;
  std::unique_ptr<ScheduledModel> scheduled_;
};

// Drawn at temperature 1, each piece from a seed of its own.
TokenTexts drawn_texts(LoadedRun& run, TokenId first, int64_t pieces, int32_t length) {
  std::vector<Request> requests(static_cast<size_t>(pieces));
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt = {first};
    requests[i].sampling.seed = i + 1;
    requests[i].sampling.ignore_eos = true;
    requests[i].sampling.max_tokens = length - 1;
  }
  const auto sink = std::make_shared<LossSink>(requests.size());
  run.run(std::move(requests), sink);
  for (std::vector<TokenId>& text : sink->texts) {
    text.insert(text.begin(), first);
  }
  return std::move(sink->texts);
}

Result<TokenTexts> file_texts(const BenchLossOptions& options, const text::Tokenizer& tokenizer,
                              TokenId first, int32_t length) {
  std::ifstream file(options.text, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  if (!file || content.empty()) {
    return Error{ErrorCode::kIo, fmt::format("cannot read a text from '{}'", options.text.string()),
                 "text"};
  }
  ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                   tokenizer.encode(content, {.add_special_tokens = false}));
  const auto all = std::min<int64_t>(std::ssize(tokens), options.tokens);
  TokenTexts texts;
  for (int64_t at = 0; at < all; at += length - 1) {
    const int64_t end = std::min<int64_t>(at + length - 1, all);
    std::vector<TokenId>& piece = texts.emplace_back(tokens.begin() + at, tokens.begin() + end);
    piece.insert(piece.begin(), first);
  }
  return texts;
}

LossRow score(LoadedRun& run, const TokenTexts& texts) {
  std::vector<Request> requests(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    requests[i].prompt = texts[i];
    requests[i].sampling.prompt_logprobs = 0;
    requests[i].sampling.max_tokens = 1;
  }
  const auto sink = std::make_shared<LossSink>(requests.size());
  run.run(std::move(requests), sink);
  return {.format = run.model().format.name(),
          .weight_bytes = run.weight_bytes(),
          .scored = sink->scored,
          .loss = sink->loss / static_cast<double>(std::max<int64_t>(sink->scored, 1)),
          .config = run.config()};
}

void print_loss(const LossRow& row, const LossRow& first) {
  fmt::print("{:32} {:>12} {:>9} {:>10.5f} {:>12.5f} {:>+13.3f} %\n", row.format,
             format_bytes(row.weight_bytes), row.scored, row.loss, std::exp(row.loss),
             100 * std::expm1(row.loss - first.loss));
  std::fflush(stdout);
}

Status write_losses(const BenchLossOptions& options, const std::vector<LossRow>& rows) {
  const std::string& path = options.json_path;
  nlohmann::ordered_json json;
  json["flags"] = nlohmann::ordered_json::parse(options.flags);
  for (const LossRow& row : rows) {
    json["rows"].push_back({{"format", row.format},
                            {"weight_bytes", row.weight_bytes},
                            {"tokens", row.scored},
                            {"loss", row.loss},
                            {"perplexity", std::exp(row.loss)},
                            {"perplexity_over_first", std::exp(row.loss - rows.front().loss)},
                            {"config", nlohmann::ordered_json::parse(row.config)}});
  }
  std::ofstream file(path);
  file << json.dump(1) << "\n";
  file.flush();
  return file.good()
             ? Status{}
             : Status{Error{ErrorCode::kIo, fmt::format("cannot write '{}'", path), "json"}};
}

Result<TokenTexts> texts_of(const BenchLossOptions& options, LoadedRun& run) {
  const int32_t length = std::min(options.context_tokens, run.model().plan.max_model_len);
  ASSIGN_OR_RETURN(const std::unique_ptr<text::Tokenizer> tokenizer,
                   text::load_tokenizer(options.node.model));
  const TokenId first = tokenizer->bos_id().value_or(tokenizer->eos_id().value_or(0));
  if (!options.text.empty()) {
    return file_texts(options, *tokenizer, first, length);
  }
  return drawn_texts(run, first, std::max(options.tokens / length, 1), length);
}

Status run_losses(BenchLossOptions& options) {
  TokenTexts texts;
  std::vector<LossRow> rows;
  std::vector<std::optional<Quantization>> formats(options.formats.begin(), options.formats.end());
  const Activations activations = options.node.activations;
  for (size_t i = 0; i < formats.size(); ++i) {
    options.node.quantization = formats[i];
    options.node.activations =
        formats[i] == Quantization::kNone ? Activations::kPlain : activations;
    ASSIGN_OR_RETURN(const std::unique_ptr<LoadedRun> run, LoadedRun::open(options.node));
    if (texts.empty()) {
      ASSIGN_OR_RETURN(texts, texts_of(options, *run));
      if (run->model().folder.stored) {
        formats.insert(formats.begin() + 1, std::nullopt);
      }
      fmt::print("{:32} {:>12} {:>9} {:>10} {:>12} {:>15}\n", "weights", "bytes", "tokens", "loss",
                 "perplexity", "over the first");
    }
    rows.push_back(score(*run, texts));
    print_loss(rows.back(), rows.front());
  }
  return options.json_path.empty() ? Status{} : write_losses(options, rows);
}

}  // namespace

int bench_loss(BenchLossOptions options) {
  options.node.dtype = ElementType::kBF16;  // what quantised weights are multiplied with
  const Status status = run_losses(options);
  if (!status.ok()) {
    log::error("{}", status.error().message);
    return cli::exit_code_of(status.error().code);
  }
  return 0;
}

}  // namespace tandem::bench
