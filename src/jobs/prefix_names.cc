#include "jobs/prefix_names.h"

#include <bit>

#include "kv/block_hash.h"

namespace tandem::jobs {

std::vector<BlockHash> prefix_names(std::string_view tenant, std::span<const TokenId> prompt,
                                    int32_t block_tokens) {
  constexpr size_t kEach = 8;        // blocks that are all named
  constexpr size_t kOfDoubling = 4;  // named blocks of each doubling after them
  const auto block = static_cast<size_t>(block_tokens);
  std::vector<BlockHash> names;
  BlockHash hash = root_hash(tenant);
  size_t next = 1;
  for (size_t number = 1; number * block <= prompt.size() && names.size() < kMaxPrefixNames;
       ++number) {
    hash = chain_hash(hash, prompt.subspan((number - 1) * block, block));
    if (number == next) {
      names.push_back(hash);
      next += number < kEach ? 1 : std::bit_floor(number) / kOfDoubling;
    }
  }
  return names;
}

}  // namespace tandem::jobs
