// config.json and generation_config.json, the same text as both.
#include "fuzz/fuzz.h"
#include "model/config.h"
#include "model/generation_config.h"

namespace tandem::model {
TANDEM_FUZZ_TARGET(input) {
  const std::string text(input);
  const Result<ModelConfig> config = parse_config(text);
  if (config.ok()) {
    CHECK(config->layers > 0 && config->hidden > 0 && config->heads > 0 && config->kv_heads > 0);
    CHECK(config->head_dim > 0 && config->head_dim % 2 == 0 && config->vocabulary > 0);
    CHECK(config->heads % config->kv_heads == 0);
    if (config->quantization) {
      CHECK(!config->quantization->schemes.empty());
      for (const QuantizationScheme& scheme : config->quantization->schemes) {
        CHECK(scheme.bits == 4 || scheme.bits == 8);
        CHECK(scheme.group_size == -1 || (scheme.group_size > 0 && scheme.group_size % 32 == 0));
      }
    }
    for (const TokenId token : config->eos_token_ids) {
      CHECK(token >= 0 && token < config->vocabulary);
    }
  } else {
    CHECK(!config.error().message.empty());
  }
  const Result<GenerationDefaults> defaults = parse_generation_config(text, 1000);
  if (defaults.ok()) {
    CHECK(defaults->top_k.value_or(0) >= 0);
    for (const TokenId token : defaults->eos_token_ids) {
      CHECK(token >= 0 && token < 1000);
    }
  } else {
    CHECK(!defaults.error().message.empty());
  }
}
}  // namespace tandem::model
