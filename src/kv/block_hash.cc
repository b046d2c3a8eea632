#include "kv/block_hash.h"

#include <openssl/sha.h>

namespace tandem {
namespace {

BlockHash shortened(const std::array<unsigned char, SHA256_DIGEST_LENGTH>& digest) {
  BlockHash hash;
  std::memcpy(hash.words.data(), digest.data(), sizeof(hash.words));
  return hash;
}

BlockHash hash_bytes(const std::vector<unsigned char>& bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(bytes.data(), bytes.size(), digest.data());
  return shortened(digest);
}

}  // namespace

BlockHash root_hash(std::string_view tenant) {
  return hash_bytes(std::vector<unsigned char>(tenant.begin(), tenant.end()));
}

BlockHash chain_hash(const BlockHash& parent, std::span<const TokenId> tokens) {
  std::vector<unsigned char> bytes(sizeof(parent.words) + tokens.size_bytes());
  std::memcpy(bytes.data(), parent.words.data(), sizeof(parent.words));
  std::memcpy(bytes.data() + sizeof(parent.words), tokens.data(), tokens.size_bytes());
  return hash_bytes(bytes);
}

void extend_hashes(std::vector<BlockHash>& hashes, const BlockHash& root,
                   std::span<const TokenId> tokens, int32_t block_tokens) {
  const auto block = static_cast<size_t>(block_tokens);
  while ((hashes.size() + 1) * block <= tokens.size()) {
    const BlockHash& parent = hashes.empty() ? root : hashes.back();
    hashes.push_back(chain_hash(parent, tokens.subspan(hashes.size() * block, block)));
  }
}

}  // namespace tandem
