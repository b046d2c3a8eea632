// A working tokenizer for made-up models: byte-level BPE over all 256 bytes, so that any text goes
// there and back, with merges of common letters up to the size of the vocabulary. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"
#include "base/result.h"

namespace tandem::model {

// Ids of the special tokens; the bytes follow, then the merges.
inline constexpr TokenId kMadeBos = 0;        // <s>
inline constexpr TokenId kMadeEos = 1;        // </s>
inline constexpr TokenId kMadeTurnBegin = 2;  // <|im_start|>
inline constexpr TokenId kMadeTurnEnd = 3;    // <|im_end|>

inline constexpr int32_t kMinMadeVocabulary = 4 + 256;
inline constexpr int32_t kMaxMadeVocabulary = 1 << 18;

// The text of tokenizer.json with exactly `vocabulary` ids, from kMinMadeVocabulary to
// kMaxMadeVocabulary.
std::string made_tokenizer_json(int32_t vocabulary);

// The text of tokenizer_config.json: the special tokens and a chat template with role markers.
std::string made_tokenizer_config_json(int32_t max_positions);

}  // namespace tandem::model
