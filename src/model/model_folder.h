// A model as it lies on disk, a Hugging Face folder or a GGUF file, opened as far as its small
// files or metadata: shape and sampling defaults. The weights are read by load_weights, the
// tokenizer by text/. Plain data; any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "model/generation_config.h"
#include "model/weight_formats.h"

namespace tandem::model {

struct ModelFolder {
  std::filesystem::path path;  // of the folder, or of the (first) GGUF file
  ModelConfig config;
  GenerationDefaults generation;
  std::vector<TokenId> eos_token_ids;   // of both files, each once, ascending
  std::vector<std::string> warnings;    // what the files say and cannot be used
  std::optional<WeightFormats> stored;  // how quantised weights of the files can stay as they are
};

// Makes `id` an end token, too. One outside the vocabulary, which no answer can have, is left out
// with a warning.
void add_end_token(ModelFolder& folder, TokenId id, std::string_view source);

// `path`: a folder, or a GGUF file. Errors say what to do: a hub id that must be downloaded first,
// another file, a folder without config.json or with GGUF files only.
Result<ModelFolder> open_model_folder(const std::filesystem::path& path);

}  // namespace tandem::model
