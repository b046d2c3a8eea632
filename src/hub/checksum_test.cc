#include "hub/checksum.h"

#include <gtest/gtest.h>

#include "hub/test_folder.h"

namespace tandem::hub {
namespace {

// `printf 'hello\n' | git hash-object --stdin` and sha256sum.
constexpr const char* kGit = "ce013625030ba8dba906f756967f9e9ca394464a";
constexpr const char* kSha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

TEST(Checksum, IsThatOfGitOrSha256ByItsLength) {
  for (const char* expected : {kGit, kSha256}) {
    Checksum whole(expected, 6);
    whole.add("hello\n");
    EXPECT_EQ(whole.finish(), expected);

    Checksum pieces(expected, 6);
    pieces.add("wrong");
    pieces.restart();
    pieces.add("hel");
    pieces.add("");
    pieces.add("lo\n");
    EXPECT_EQ(pieces.finish(), expected);
  }
}

TEST(Checksum, StandsInEtags) {
  const std::string quoted = '"' + std::string(kGit) + '"';
  EXPECT_EQ(checksum_of_etag(quoted), kGit);
  EXPECT_EQ(checksum_of_etag("W/" + quoted), kGit);
  EXPECT_EQ(checksum_of_etag(kSha256), kSha256);
  for (const char* other : {"", "\"\"", "\"abc\"", "W/\"5d41-602f\"", "../../x"}) {
    EXPECT_EQ(checksum_of_etag(other), "") << other;
  }
  EXPECT_EQ(checksum_of_etag(quoted.substr(0, quoted.size() - 1) + "-gzip\""), "");
}

TEST(Checksum, OfAFileIsCompared) {
  const TestFolder folder;
  folder.write("a", "hello\n");
  const auto never = [] { return false; };
  EXPECT_TRUE(has_checksum(folder.path() / "a", kGit, never));
  EXPECT_TRUE(has_checksum(folder.path() / "a", kSha256, never));
  EXPECT_FALSE(has_checksum(folder.path() / "a", kSha256, [] { return true; }));
  folder.write("a", "hellO\n");
  EXPECT_FALSE(has_checksum(folder.path() / "a", kGit, never));
  EXPECT_FALSE(has_checksum(folder.path() / "none", kGit, never));
}

}  // namespace
}  // namespace tandem::hub
