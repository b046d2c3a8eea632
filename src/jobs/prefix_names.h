// The names of some of a prompt's leading KV blocks: enough to order lines by shared prefixes, in
// bounded memory. Names are the prefix cache's own (kv/block_hash.h), with its salt. Each of the
// first eight blocks is named, and after them four blocks in each doubling: 10, 12, 14, 16, 20, 24
// and so on. A name covers all blocks before it, so equal names still mean equal prefixes. If two
// prompts part between two named blocks, the order sees them part at the first of the two.
// Threads: any; a pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/block_hash.h"
#include "base/ids.h"

namespace tandem::jobs {

// The last of them ends at block 512, for blocks of 32 tokens at 16,384 tokens.
inline constexpr size_t kMaxPrefixNames = 32;

// Of full blocks. `tenant` as of Request.
[[nodiscard]] std::vector<BlockHash> prefix_names(std::string_view tenant,
                                                  std::span<const TokenId> prompt,
                                                  int32_t block_tokens);

}  // namespace tandem::jobs
