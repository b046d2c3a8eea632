// What a model folder holds and what it needs, from its small files and headers alone: for `tandem
// model info`. Plain data; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/formats.h"
#include "model/model_folder.h"

namespace tandem::model {

struct ModelFile {
  std::string name;
  int64_t bytes = 0;
};

// With weights held in `format` and KV of its type.
struct MemoryNeed {
  WeightFormats format;
  int64_t weight_bytes = 0;
  int64_t kv_bytes_per_token = 0;
  int64_t kv_tokens = 0;  // that fit beside the weights, workspaces not counted; 0: weights do not
                          // fit
};

struct ModelReport {
  ModelFolder folder;
  int64_t parameters = 0;
  std::vector<ModelFile> files;                     // weights, by name
  std::map<std::string, int64_t> checkpoint_bytes;  // by dtype as in the files: "BF16"
  std::string tokenizer;                            // "byte-level BPE (tokenizer.json)", "none"
  bool has_chat_template = false;
  int64_t memory_bytes = 0;       // as given
  std::vector<MemoryNeed> needs;  // as the file has them, bf16, fp32 and the quantised ones
};

// `memory_bytes`: what the process may use. Errors as of open_model_folder, and of broken weight
// files.
Result<ModelReport> describe_model(const std::filesystem::path& path, int64_t memory_bytes);

}  // namespace tandem::model
