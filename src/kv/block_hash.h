// Names of full KV blocks for the prefix cache: a block's hash covers its tokens, all tokens before
// them and the tenant's salt, so equal hashes mean equal prefixes of the same tenant. SHA-256 cut
// to 128 bits: no client can construct two prefixes with one hash. Any thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/block_hash.h"
#include "base/ids.h"

namespace tandem {

// The hash before a sequence's first block.
BlockHash root_hash(std::string_view tenant);

BlockHash chain_hash(const BlockHash& parent, std::span<const TokenId> tokens);

// Extends `hashes` so that it names every full block of `tokens`. `hashes` holds those of a prefix
// of the same tokens.
void extend_hashes(std::vector<BlockHash>& hashes, const BlockHash& root,
                   std::span<const TokenId> tokens, int32_t block_tokens);

}  // namespace tandem
