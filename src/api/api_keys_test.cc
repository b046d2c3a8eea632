#include "api/api_keys.h"

#include <gtest/gtest.h>

#include "api/test_files.h"

namespace tandem::api {
namespace {

TEST(ApiKeys, AnyOfTheKeysOpens) {
  const ApiKeys keys(std::vector<std::string>{"first", "second-longer"});
  EXPECT_TRUE(keys.required());
  EXPECT_EQ(keys.match("Bearer first"), 0);
  EXPECT_EQ(keys.match("bearer second-longer"), 1);
  EXPECT_EQ(keys.match("BEARER   first"), 0);
}

TEST(ApiKeys, EverythingElseDoesNot) {
  const ApiKeys keys(std::vector<std::string>{"first", "second", ""});
  for (const char* value : {"", "Bearer", "Bearer ", "Bearer firs", "Bearer firstfirst",
                            "Bearer First", "Basic first", "first", "Bearer first second"}) {
    EXPECT_EQ(keys.match(value), std::nullopt) << value;
  }
  EXPECT_FALSE(ApiKeys(std::vector<std::string>()).required());
}

TEST(ApiKeys, AReplacedKeyNoLongerOpensAndItsNumberIsNotGivenToAnother) {
  ApiKeys keys(std::vector<std::string>{"a", "b"});
  keys.replace(std::vector<std::string>{"c", "b"});
  EXPECT_EQ(keys.match("Bearer a"), std::nullopt);
  EXPECT_EQ(keys.match("Bearer b"), 1);
  EXPECT_EQ(keys.match("Bearer c"), 2);
  keys.replace(std::vector<std::string>{"a"});
  EXPECT_EQ(keys.match("Bearer a"), 0);
  EXPECT_EQ(keys.count(), 1U);
}

TEST(ApiKeys, AFileHoldsOneKeyALine) {
  const TempFolder folder;
  const std::string path = folder.write("keys", "# ours\nfirst\n\n  second \r\n");
  const auto keys = read_key_file(path);
  ASSERT_TRUE(keys.ok()) << keys.error().message;
  EXPECT_EQ(*keys, (std::vector<std::string>{"first", "second"}));
}

TEST(ApiKeys, ErrorsOfAFileDoNotTellItsKeys) {
  const TempFolder folder;
  const std::string path = folder.file("keys");
  for (const std::string_view content : {"secret one\n", "# nothing\n",
                                         "s\xc3\xa9"
                                         "cret\n"}) {
    folder.write("keys", content);
    const auto keys = read_key_file(path);
    ASSERT_FALSE(keys.ok()) << content;
    EXPECT_NE(keys.error().message.find(path), std::string::npos);
    EXPECT_EQ(keys.error().message.find("cret"), std::string::npos) << keys.error().message;
  }
  EXPECT_FALSE(read_key_file(path + "-absent").ok());
}

}  // namespace
}  // namespace tandem::api
