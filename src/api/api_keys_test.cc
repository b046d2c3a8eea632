#include "api/api_keys.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::api {
namespace {

std::vector<ApiKey> of(const std::vector<std::string>& words) {
  std::vector<ApiKey> keys;
  for (const std::string& word : words) {
    keys.push_back({.key = word});
  }
  return keys;
}

std::optional<int64_t> number(const ApiKeys& keys, std::string_view header) {
  const std::optional<KeyMatch> match = keys.match(header);
  return match ? std::optional(match->number) : std::nullopt;
}

TEST(ApiKeys, AnyOfTheKeysOpens) {
  const ApiKeys keys(of({"first", "second-longer"}));
  EXPECT_TRUE(keys.required());
  EXPECT_EQ(number(keys, "Bearer first"), 0);
  EXPECT_EQ(number(keys, "bearer second-longer"), 1);
  EXPECT_EQ(number(keys, "BEARER   first"), 0);
}

TEST(ApiKeys, EverythingElseDoesNot) {
  const ApiKeys keys(of({"first", "second", ""}));
  for (const char* value : {"", "Bearer", "Bearer ", "Bearer firs", "Bearer firstfirst",
                            "Bearer First", "Basic first", "first", "Bearer first second"}) {
    EXPECT_EQ(number(keys, value), std::nullopt) << value;
  }
  EXPECT_FALSE(ApiKeys(of({})).required());
}

TEST(ApiKeys, AReplacedKeyNoLongerOpensAndItsNumberIsNotGivenToAnother) {
  ApiKeys keys(of({"a", "b"}));
  keys.replace(of({"c", "b"}));
  EXPECT_EQ(number(keys, "Bearer a"), std::nullopt);
  EXPECT_EQ(number(keys, "Bearer b"), 1);
  EXPECT_EQ(number(keys, "Bearer c"), 2);
  keys.replace(of({"a"}));
  EXPECT_EQ(number(keys, "Bearer a"), 0);
  EXPECT_EQ(keys.count(), 1U);
}

TEST(ApiKeys, TheOwnerOfObjectsFollowsTheKeyAlone) {
  const ApiKeys keys(of({"a", "b"}));
  const std::string owner = keys.match("Bearer a")->owner;
  EXPECT_NE(owner, keys.match("Bearer b")->owner);
  const ApiKeys others(of({"c", "a"}));  // another process, with another number for it
  EXPECT_EQ(others.match("Bearer a")->owner, owner);
  EXPECT_EQ(others.match_owner(owner)->number, 1);
  EXPECT_FALSE(ApiKeys(of({"b"})).match_owner(owner).has_value());
}

TEST(ApiKeys, FormerKeysAreForgottenInTimeAndTheirNumbersNotGivenAgain) {
  ApiKeys keys(of({"first"}));
  for (int64_t i = 1; i <= ApiKeys::kMaxFormer + 1; ++i) {
    keys.replace(std::vector<ApiKey>{{"key" + std::to_string(i), {}}});
    EXPECT_EQ(number(keys, ("Bearer key" + std::to_string(i)).c_str()), i);
  }
  keys.replace(of({"key9", "first"}));
  EXPECT_EQ(number(keys, "Bearer key9"), 9);
  EXPECT_EQ(number(keys, "Bearer first"), ApiKeys::kMaxFormer + 2);
}

TEST(ApiKeys, AReplacedKeyHasItsNewGrant) {
  ApiKeys keys(of({"a"}));
  EXPECT_EQ(keys.match("Bearer a")->grant, ServiceGrant{});
  const ServiceGrant flex{.best_class = ServiceClass::kBestEffort};
  keys.replace(std::vector<ApiKey>{{"a", flex}});
  EXPECT_EQ(keys.match("Bearer a")->grant, flex);
  EXPECT_EQ(keys.match("Bearer a")->number, 0);
}

}  // namespace
}  // namespace tandem::api
