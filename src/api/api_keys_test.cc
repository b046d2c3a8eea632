#include "api/api_keys.h"

#include <gtest/gtest.h>

namespace tandem::api {
namespace {

TEST(ApiKeys, AnyOfTheKeysOpens) {
  const ApiKeys keys({"first", "second-longer"});
  EXPECT_TRUE(keys.required());
  EXPECT_EQ(keys.match("Bearer first"), 0U);
  EXPECT_EQ(keys.match("bearer second-longer"), 1U);
  EXPECT_EQ(keys.match("BEARER   first"), 0U);
}

TEST(ApiKeys, EverythingElseDoesNot) {
  const ApiKeys keys({"first", "second"});
  for (const char* value : {"", "Bearer", "Bearer ", "Bearer firs", "Bearer firstfirst",
                            "Bearer First", "Basic first", "first", "Bearer first second"}) {
    EXPECT_EQ(keys.match(value), std::nullopt) << value;
  }
  EXPECT_FALSE(ApiKeys({}).required());
}

}  // namespace
}  // namespace tandem::api
