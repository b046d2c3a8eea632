// Makes a model of random weights as a Hugging Face folder: config.json, generation_config.json,
// safetensors (in shards, with their index, when large) and a working tokenizer. Its words are
// noise, its shape, speed and memory are a real model's.
//
// Weights are scaled so that activations stay near 1 and logits within about +-10. The same options
// give the same bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "base/result.h"
#include "model/config.h"
#include "model/weights.h"

namespace tandem::model {

// tiny (a few MB), 1B (TinyLlama-1.1B), 3B (Llama-3.2-3B), 7B (Llama-2-7B),
// Mistral-7B, 8B (Llama-3-8B), 13B (Llama-2-13B), 14B (Qwen2.5-14B without biases), 34B (Yi-34B),
// 70B (Llama-2-70B). Unknown:
// an error with the known ones.
Result<ModelConfig> preset_config(std::string_view name);

enum class ExistingFolder : uint8_t {
  kRefuse,   // unless it is empty
  kReplace,  // if it holds nothing but a model's files
};

struct MakeOptions {
  // From a preset, changed as wanted; architecture, special tokens and their ids are set by
  // make_model. checkpoint_type is the type written.
  ModelConfig config;
  uint64_t seed = 0;
  ExistingFolder existing = ExistingFolder::kRefuse;
  int64_t shard_bytes = 5'000'000'000;  // weights above this are cut into several files
  std::function<void(const LoadProgress&)> on_progress;  // on the calling thread; may be empty
};

// Writes beside `folder` first and renames at the end, so that an interrupted run leaves no half
// model there. Errors: a shape that parse_config refuses, a folder in the way, a full disk.
Status make_model(const MakeOptions& options, const std::filesystem::path& folder);

}  // namespace tandem::model
