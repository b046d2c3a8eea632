// For tests: the shared vocabularies with golden vectors, as model folders that load_tokenizer()
// reads. What the shared folder has as tiktoken text or GGUF is written as a tokenizer.json first.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace tandem::text::testing {

// A folder that is removed with the object.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, std::string_view content) const;

 private:
  std::filesystem::path path_;
};

// The folder of shared test data: $TANDEM_SHARED, or beside the repository. nullopt where there is
// none.
[[nodiscard]] std::optional<std::filesystem::path> shared_folder();

// With shared data absent, a test is skipped on a person's machine and fails in CI (where $CI is
// "true").
#define REQUIRE_SHARED_FOLDER(name)                                               \
  const std::optional<std::filesystem::path> name##_found =                       \
      ::tandem::text::testing::shared_folder();                                   \
  if (!name##_found) {                                                            \
    if (std::string_view(std::getenv("CI") ? std::getenv("CI") : "") == "true") { \
      FAIL() << "the shared test data is missing; set TANDEM_SHARED";             \
    }                                                                             \
    GTEST_SKIP() << "the shared test data is missing; set TANDEM_SHARED";         \
  }                                                                               \
  const std::filesystem::path& name = *name##_found

[[nodiscard]] std::string read_all(const std::filesystem::path& path);

struct Vectors {
  std::vector<std::string> texts;
  std::vector<std::vector<TokenId>> ids;
};
// `name`: "gpt-2", "llama-bpe", "llama-spm", "qwen2", "deepseek-llm" or "mpt".
[[nodiscard]] Vectors read_vectors(const std::filesystem::path& shared, const std::string& name);

// Loads the vocabulary that belongs to the vectors `name`; fails the test if that is impossible.
[[nodiscard]] std::unique_ptr<Tokenizer> load_vocabulary(const std::filesystem::path& shared,
                                                         const std::string& name);

}  // namespace tandem::text::testing
