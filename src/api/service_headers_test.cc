#include "api/service_headers.h"

#include <gtest/gtest.h>

namespace tandem::api {
namespace {

using namespace std::chrono_literals;

Result<ServiceClaim> claim(std::vector<std::pair<std::string, std::string>> headers) {
  HttpRequest request;
  request.headers = std::move(headers);
  return claim_of_headers(request);
}

TEST(ServiceHeaders, TheNewerNameStandsOverTheOlderOne) {
  const auto both = claim({{"x-slo-ttft-ms", "900"},
                           {"x-llm-d-slo-ttft-ms", "500"},
                           {"x-slo-tpot-ms", "50.5"},
                           {"host", "x"}});
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(*both->ttft, TtftRule{.base = 500ms});
  EXPECT_EQ(both->ttft_name, "x-llm-d-slo-ttft-ms");
  EXPECT_EQ(both->tpot, 50500us);
  EXPECT_EQ(both->tpot_name, "x-slo-tpot-ms");
  EXPECT_FALSE(claim({})->ttft.has_value());
}

TEST(ServiceHeaders, WrongValuesAreRefusedByName) {
  for (const char* value : {"", "0", "-1", "NaN", "inf", "1e9", "500ms", "500, 600", "1e308",
                            "86400000.1", "0.0001", "\xff"}) {
    for (const char* name :
         {"x-llm-d-slo-ttft-ms", "x-llm-d-slo-tpot-ms", "x-slo-ttft-ms", "x-slo-tpot-ms"}) {
      const auto wrong = claim({{name, value}});
      ASSERT_FALSE(wrong.ok()) << value;
      EXPECT_EQ(wrong.error().code, ErrorCode::kInvalidArgument);
      EXPECT_EQ(wrong.error().param, name);
    }
  }
}

TEST(ServiceHeaders, ARepeatedHeaderMustSayTheSame) {
  EXPECT_TRUE(claim({{"x-slo-ttft-ms", "5"}, {"x-slo-ttft-ms", "5.0"}}).ok());
  EXPECT_FALSE(claim({{"x-slo-ttft-ms", "5"}, {"x-slo-ttft-ms", "6"}}).ok());
}

}  // namespace
}  // namespace tandem::api
