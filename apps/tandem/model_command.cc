#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/exit_code.h"
#include "commands.h"
#include "device/cpu/machine.h"
#include "model/make.h"
#include "model/report.h"
#include "progress.h"
#include "shared_options.h"

namespace tandem {
namespace {

struct MakeFlags {
  std::string folder;
  std::string preset = "tiny";
  uint64_t seed = 0;
  std::string architecture = "llama";
  std::string dtype = "bfloat16";
  std::string shard_size = "5GB";
  std::optional<int32_t> layers, hidden, intermediate, heads, kv_heads, head_dim, vocabulary,
      max_positions;
  std::optional<std::string> tied_embeddings;
  bool force = false;
};

struct InfoFlags {
  std::string folder;
  std::string memory;
  bool json = false;
};

int failed(const Error& error) {
  fmt::print(stderr, "tandem model: {}\n", error.message);
  return cli::exit_code_of(error.code);
}

model::ModelConfig changed(model::ModelConfig config, const MakeFlags& flags) {
  config.layers = flags.layers.value_or(config.layers);
  config.hidden = flags.hidden.value_or(config.hidden);
  config.intermediate = flags.intermediate.value_or(config.intermediate);
  config.heads = flags.heads.value_or(config.heads);
  config.kv_heads = flags.kv_heads.value_or(config.kv_heads);
  config.head_dim = flags.head_dim.value_or(config.head_dim);
  config.vocabulary = flags.vocabulary.value_or(config.vocabulary);
  config.max_positions = flags.max_positions.value_or(config.max_positions);
  if (flags.tied_embeddings) {
    config.tied_embeddings = *flags.tied_embeddings == "yes";
  }
  config.architecture = flags.architecture == "mistral" ? model::Architecture::kMistral
                        : flags.architecture == "qwen2" ? model::Architecture::kQwen2
                        : flags.architecture == "qwen3" ? model::Architecture::kQwen3
                                                        : model::Architecture::kLlama;
  config.checkpoint_type = flags.dtype == "float32"   ? ElementType::kF32
                           : flags.dtype == "float16" ? ElementType::kF16
                                                      : ElementType::kBF16;
  return config;
}

int run_make(const MakeFlags& flags) {
  if (const Status started = log::start("info"); !started.ok()) {
    return failed(started.error());
  }
  const Result<model::ModelConfig> preset = model::preset_config(flags.preset);
  if (!preset.ok()) {
    return failed(preset.error());
  }
  const Result<int64_t> shard_bytes = parse_bytes(flags.shard_size);
  if (!shard_bytes.ok()) {
    return failed(shard_bytes.error());
  }
  const SteadyClock clock;
  ProgressBar bar("writing weights", clock);
  model::MakeOptions options;
  options.config = changed(*preset, flags);
  options.seed = flags.seed;
  options.existing = flags.force ? model::ExistingFolder::kReplace : model::ExistingFolder::kRefuse;
  options.shard_bytes = *shard_bytes;
  options.on_progress = [&bar](const model::LoadProgress& progress) {
    bar.show(progress.bytes_done, progress.bytes_total);
  };
  if (const Status made = model::make_model(options, flags.folder); !made.ok()) {
    return failed(made.error());
  }
  bar.finish();
  log::info("made a {} model of {} parameters with random weights in {}", flags.preset,
            rounded_count(model::parameter_count(options.config)), flags.folder);
  return 0;
}

std::string rope_text(const model::ModelConfig& config) {
  std::string text = fmt::format("theta {:g}", config.rope_theta);
  const std::string scaling = model::rope_scaling_text(config);
  return scaling.empty() ? text : text + ", " + scaling;
}

// "4096 tokens in 16 of 32 layers"; empty without.
std::string window_text(const model::ModelConfig& config) {
  const auto windowed =
      std::count_if(config.windows.begin(), config.windows.end(), [](int32_t w) { return w > 0; });
  return windowed == 0 ? std::string()
                       : fmt::format("{} tokens in {} of {} layers",
                                     std::ranges::max(config.windows), windowed, config.layers);
}

void print_text(const model::ModelReport& report) {
  const model::ModelConfig& config = report.folder.config;
  const auto line = [](std::string_view what, const std::string& text) {
    fmt::print("{:<18} {}\n", what, text);
  };
  line("model", report.folder.path.string());
  line("architecture", config.architecture_name + " (supported)");
  line("parameters", fmt::format("{} ({})", report.parameters, rounded_count(report.parameters)));
  line("layers", fmt::format("{}", config.layers));
  line("hidden", fmt::format("{}, MLP {}", config.hidden, config.intermediate));
  line("heads", fmt::format("{} of {} dimensions, {} for keys and values{}", config.heads,
                            config.head_dim, config.kv_heads, config.qkv_bias ? ", biased" : ""));
  line("vocabulary",
       fmt::format("{}{}", config.vocabulary, config.tied_embeddings ? ", embeddings tied" : ""));
  line("context", fmt::format("{} tokens, RoPE {}", config.max_positions, rope_text(config)));
  if (const std::string window = window_text(config); !window.empty()) {
    line("sliding window", window);
  }
  for (const std::string& warning : report.folder.warnings) {
    line("warning", warning);
  }
  line("end tokens", fmt::format("{}", fmt::join(report.folder.eos_token_ids, ", ")));
  line("tokenizer", report.tokenizer);
  line("chat template", report.has_chat_template ? "yes" : "no");
  for (const model::ModelFile& file : report.files) {
    line("file", fmt::format("{} ({})", file.name, format_bytes(file.bytes)));
  }
  for (const auto& [dtype, bytes] : report.checkpoint_bytes) {
    line("tensors", fmt::format("{} of {}", format_bytes(bytes), dtype));
  }
  if (config.quantization) {
    line("quantised", model::quantization_text(*config.quantization));
  }
  line("memory", format_bytes(report.memory_bytes) + " may be used");
  for (const model::MemoryNeed& need : report.needs) {
    const bool fits = need.weight_bytes <= report.memory_bytes;
    line(fmt::format("as {}", need.format.name()),
         fmt::format("weights {}, KV {} bytes a token; {}", format_bytes(need.weight_bytes),
                     need.kv_bytes_per_token,
                     fits ? fmt::format("{} tokens of KV fit beside them", need.kv_tokens)
                          : "the weights do not fit"));
  }
}

void print_json(const model::ModelReport& report) {
  using nlohmann::ordered_json;
  const model::ModelConfig& config = report.folder.config;
  ordered_json json = {
      {"model", report.folder.path.string()},
      {"architecture", config.architecture_name},
      {"parameters", report.parameters},
      {"layers", config.layers},
      {"hidden", config.hidden},
      {"intermediate", config.intermediate},
      {"heads", config.heads},
      {"kv_heads", config.kv_heads},
      {"head_dim", config.head_dim},
      {"vocabulary", config.vocabulary},
      {"max_positions", config.max_positions},
      {"rope_theta", config.rope_theta},
      {"tied_embeddings", config.tied_embeddings},
      {"qkv_bias", config.qkv_bias},
      {"rope_scaling", model::rope_scaling_text(config)},
      {"sliding_window", window_text(config)},
      {"eos_token_ids", report.folder.eos_token_ids},
      {"warnings", report.folder.warnings},
      {"tokenizer", report.tokenizer},
      {"chat_template", report.has_chat_template},
      {"quantization",
       config.quantization ? model::quantization_text(*config.quantization) : std::string()},
      {"checkpoint_bytes", report.checkpoint_bytes},
      {"memory_bytes", report.memory_bytes}};
  json["files"] = ordered_json::array();
  for (const model::ModelFile& file : report.files) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}});
  }
  for (const model::MemoryNeed& need : report.needs) {
    json["needs"][need.format.name()] = {{"weight_bytes", need.weight_bytes},
                                         {"kv_bytes_per_token", need.kv_bytes_per_token},
                                         {"kv_tokens", need.kv_tokens}};
  }
  fmt::print("{}\n", json.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

int run_info(const InfoFlags& flags) {
  int64_t memory_bytes = device::machine_memory().free_bytes;
  if (!flags.memory.empty()) {
    const Result<int64_t> given = parse_bytes(flags.memory);
    if (!given.ok()) {
      return failed(given.error());
    }
    memory_bytes = *given;
  }
  const Result<model::ModelReport> report = model::describe_model(flags.folder, memory_bytes);
  if (!report.ok()) {
    return failed(report.error());
  }
  flags.json ? print_json(*report) : print_text(*report);
  return 0;
}

void add_make(cli::Command model, const std::shared_ptr<int>& exit_code) {
  auto flags = std::make_shared<MakeFlags>();
  const cli::Command make = model.add_subcommand("make",
                                                 "Write a model of random weights; its words are "
                                                 "noise, its shape and speed a real model's");
  make.add_option("folder", flags->folder, "Folder to make").required();
  make.add_option("--preset", flags->preset,
                  "tiny, 1B (TinyLlama-1.1B), 3B (Llama-3.2-3B), 7B (Llama-2-7B), Mistral-7B, 8B "
                  "(Llama-3-8B), 13B (Llama-2-13B), 14B (Qwen2.5-14B), 34B (Yi-34B) or 70B "
                  "(Llama-2-70B)")
      .capture_default_str();
  make.add_option("--seed", flags->seed, "The same seed gives the same bytes")
      .capture_default_str();
  make.add_option("--architecture", flags->architecture,
                  "llama, mistral, qwen2 (biased QKV) or qwen3 (norms of heads)")
      .one_of({"llama", "mistral", "qwen2", "qwen3"})
      .capture_default_str();
  make.add_option("--dtype", flags->dtype, "Element type of the files")
      .one_of({"bfloat16", "float32", "float16"})
      .capture_default_str();
  make.add_option("--layers", flags->layers, "Layers (default: the preset's, as below)");
  make.add_option("--hidden", flags->hidden, "Width of the residual");
  make.add_option("--intermediate", flags->intermediate, "Width of the MLP");
  make.add_option("--heads", flags->heads, "Query heads");
  make.add_option("--kv-heads", flags->kv_heads, "Key and value heads; divides --heads");
  make.add_option("--head-dim", flags->head_dim, "Dimensions of a head; even");
  make.add_option("--vocab", flags->vocabulary, "Tokens, from 260 to 262144");
  make.add_option("--max-positions", flags->max_positions, "Context limit, tokens");
  make.add_option("--tied-embeddings", flags->tied_embeddings, "yes: the LM head is the embedding")
      .one_of({"yes", "no"});
  make.add_option("--shard-size", flags->shard_size, "Largest weight file, such as 5GB")
      .capture_default_str();
  make.add_flag("--force", flags->force, "Replace a model that is already in the folder");
  make.callback([flags, exit_code] { *exit_code = run_make(*flags); });
}

void add_info(cli::Command model, const std::shared_ptr<int>& exit_code) {
  auto flags = std::make_shared<InfoFlags>();
  const cli::Command info =
      model.add_subcommand("info", "Shape, bytes and what fits of a model; loads nothing");
  info.add_option("folder", flags->folder, "A Hugging Face model folder, or a GGUF file")
      .required();
  info.add_option("--memory", flags->memory,
                  "Memory to fit into, such as 16GiB (default: what is free here)");
  info.add_flag("--json", flags->json, "Print JSON");
  info.callback([flags, exit_code] { *exit_code = run_info(*flags); });
}

}  // namespace

RunCommand describe_model(cli::Command app) {
  auto exit_code = std::make_shared<int>(2);
  app.require_subcommand();
  add_make(app, exit_code);
  add_info(app, exit_code);
  return [exit_code] { return *exit_code; };  // the chosen command has run inside the parse
}

}  // namespace tandem
