#include "api/page.h"

#include <gtest/gtest.h>

namespace tandem::api {
namespace {

TEST(Page, OnlyItsOwnScriptsAndStylesMayRun) {
  // echo -n 'a()' | openssl dgst -sha256 -binary | base64
  const std::string policy =
      content_security_policy("<style>p{}</style><script>a()</script><script>b()</script>");
  EXPECT_NE(policy.find("script-src 'sha256-qVpDBgj7bpq5hMAcGp3AOc79J3Y1Z4HvySTwKrWDoy4=' "
                        "'sha256-cf242PFc/kb7xD0Qzhsmd9vvRkc+cWFmbi+k+YvtdKc=';"),
            std::string::npos)
      << policy;
  EXPECT_NE(policy.find("style-src 'sha256-gG2yISYereRMiG2lMXrbiUgi0Ubw9p7QCeWcroOvy9Y=';"),
            std::string::npos)
      << policy;
  EXPECT_EQ(policy.find("unsafe"), std::string::npos);
  EXPECT_NE(content_security_policy("<p>").find("script-src 'none'"), std::string::npos);
}

TEST(Page, IsOneDocumentWithoutOutsideResources) {
  EXPECT_TRUE(kPageHtml.starts_with("<!doctype html>"));
  EXPECT_LT(kPageHtml.size(), 100 * 1000U);
  for (const char* outside : {"src=", "<link rel=\"stylesheet\"", "@import", "url("}) {
    EXPECT_EQ(kPageHtml.find(outside), std::string_view::npos) << outside;
  }
  // Attributes that would need 'unsafe-inline'.
  for (const char* inlined : {" style=", " onclick=", " onload=", "javascript:"}) {
    EXPECT_EQ(kPageHtml.find(inlined), std::string_view::npos) << inlined;
  }
}

}  // namespace
}  // namespace tandem::api
