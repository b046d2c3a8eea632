// Values of GGUF blocks. Each value is what the format defines: a small integer times the scales of
// its block, computed in fp32 (docs/decisions/046). Any thread; no state.
#pragma once

#include <cstddef>
#include <span>

#include "base/element_type.h"
#include "gguf/blocks.h"

namespace tandem::gguf {

// `blocks` holds whole blocks of `type` for exactly out.size() values, a multiple of the type's
// block. No alignment is needed.
void dequantise(BlockType type, const std::byte* blocks, std::span<float> out);
// The same, each value rounded to the nearest bf16 (ties to even).
void dequantise(BlockType type, const std::byte* blocks, std::span<BFloat16> out);

}  // namespace tandem::gguf
