// Checksums by which a hub names the contents of files: SHA-256 of large files (LFS), and the hash
// that git gives small ones, SHA-1 of "blob SIZE\0" and the content. Threads: one owner.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace tandem::hub {

// The checksum in an ETag, without quotes and the mark of a weak one; empty: `etag` names none.
[[nodiscard]] std::string checksum_of_etag(std::string_view etag);

// 40 or 64 lower-case hexadecimal digits.
[[nodiscard]] bool is_checksum(std::string_view text);

// Computes the checksum of the kind that `expected` is, of a file of `file_bytes`.
class Checksum {
 public:
  // Needs is_checksum(expected).
  Checksum(std::string_view expected, int64_t file_bytes);
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;

  void add(std::string_view bytes);
  void restart();  // forgets what was added
  // In hexadecimal digits. Nothing may be added before the next restart().
  [[nodiscard]] std::string finish();

 private:
  bool is_git_;
  int64_t file_bytes_;
  evp_md_ctx_st* context_;
};

// True: the file at `path` can be read and has this checksum, which must be one. `stop` is asked
// meanwhile; true ends it with false.
[[nodiscard]] bool has_checksum(const std::filesystem::path& path, std::string_view checksum,
                                const std::function<bool()>& stop);

}  // namespace tandem::hub
