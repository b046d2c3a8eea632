// What the metadata of a GGUF file say about the shape of a model and about sampling, and how its
// tensors are named. Reads headers and the small tensor of RoPE divisors. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "gguf/files.h"
#include "model/config.h"
#include "model/generation_config.h"

namespace tandem::model {

// Errors name the file and the key. Tensors that the architecture has no place for are errors, too:
// they would change the text.
Result<ModelConfig> gguf_config(const gguf::Files& files);

// "general.sampling.*", where a file has them.
Result<GenerationDefaults> gguf_generation_defaults(const gguf::Metadata& metadata,
                                                    int32_t vocabulary);

// "blk.0.attn_q.weight" -> "model.layers.0.self_attn.q_proj.weight"; nullopt for a name that no
// supported architecture has.
std::optional<std::string> plan_name_of_gguf(std::string_view name);
// The reverse; `name` itself where there is none.
std::string gguf_name_of_plan(std::string_view name);

}  // namespace tandem::model
