#include "request/service.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

using namespace std::chrono_literals;

ServiceClaim claim(std::optional<ServiceClass> service_class, std::optional<int32_t> level = {}) {
  ServiceClaim claim;
  claim.service_class = service_class;
  claim.level = level;
  return claim;
}

ServiceClaim targets(Nanos ttft, Nanos tpot) {
  ServiceClaim claim;
  claim.ttft = TtftRule{.base = ttft};
  claim.ttft_name = "slo.ttft_ms";
  claim.tpot = tpot;
  claim.tpot_name = "slo.tpot_ms";
  return claim;
}

ServiceTerms settled(const ServiceClaim& claim, const ServiceGrant& grant = {},
                     const ServiceDefaults& defaults = {}) {
  const Result<ServiceTerms> terms = settle(claim, grant, defaults, 100);
  EXPECT_TRUE(terms.ok()) << terms.error().message;
  return *terms;
}

TEST(Service, TheRequestStandsOverTheKeyAndTheKeyOverTheServer) {
  const ServiceDefaults server{.service_class = kBe,
                               .slo = {.ttft = TtftRule{.base = 3s}, .tpot = 300ms}};
  const ServiceGrant key{
      .service_class = kLs, .level = 2, .slo = {.ttft = TtftRule{.base = 2s}, .tpot = {}}};
  EXPECT_EQ(settled({}).service_class, kLs);
  EXPECT_EQ(settled({}, {}, server).service_class, kBe);
  EXPECT_EQ(settled({}, key, server).service_class, kLs);
  EXPECT_EQ(settled(claim(kBe), key, server).service_class, kBe);
  EXPECT_EQ(settled({}).level, 0);
  EXPECT_EQ(settled({}, key).level, 2);
  EXPECT_EQ(settled(claim({}, -7), key).level, -7);
  // Each target by itself.
  EXPECT_EQ(settled({}, key, server).slo, (Slo{TtftRule{.base = 2s}, 300ms}));
  EXPECT_EQ(settled(targets(1s, 10ms), key, server).slo, (Slo{TtftRule{.base = 1s}, 10ms}));
}

TEST(Service, ABestEffortRequestHasItsOwnTargetsAlone) {
  const ServiceDefaults server{.slo = {.ttft = TtftRule{.base = 3s}, .tpot = 300ms}};
  EXPECT_EQ(settled(claim(kBe), {}, server).slo, Slo{});
  ServiceClaim asked = targets(9s, 1s);
  asked.service_class = kBe;
  EXPECT_EQ(settled(asked, {}, server).slo, (Slo{TtftRule{.base = 9s}, 1s}));
}

TEST(Service, AnUpperClaimStandsOverALowerOneFieldByField) {
  ServiceClaim upper = claim(kBe);
  upper.tpot = 5ms;
  upper.tpot_name = "slo.tpot_ms";
  ServiceClaim lower = targets(1s, 2s);
  lower.service_class = kLs;
  lower.level = 4;
  const ServiceClaim both = claim_over(upper, lower);
  EXPECT_EQ(both.service_class, kBe);
  EXPECT_EQ(both.level, 4);
  EXPECT_EQ(both.ttft->base, 1s);
  EXPECT_EQ(both.tpot, 5ms);
  EXPECT_EQ(both.tpot_name, "slo.tpot_ms");
}

TEST(Service, WhatAKeyMayNotClaimIsRefusedByName) {
  const ServiceGrant key{.best_class = kBe,
                         .least_level = 0,
                         .least_ttft = TtftRule{.base = 1s, .per_token = 20ms},  // 2 s for 100
                         .least_tpot = 100ms};
  for (const auto& [asked, field] :
       {std::pair(claim(kLs), "service_tier"), std::pair(claim({}, -1), "priority"),
        std::pair(targets(1999ms, 1s), "slo.ttft_ms"),
        std::pair(targets(2s, 99ms), "slo.tpot_ms")}) {
    const Result<ServiceTerms> terms = settle(asked, key, {}, 100);
    ASSERT_FALSE(terms.ok()) << field;
    EXPECT_EQ(terms.error().code, ErrorCode::kForbidden);
    EXPECT_EQ(terms.error().param, field);
    EXPECT_NE(terms.error().message.find(field), std::string::npos) << terms.error().message;
  }
  EXPECT_EQ(settled(targets(2s, 100ms), key).slo, (Slo{TtftRule{.base = 2s}, 100ms}));
}

TEST(Service, WhatNobodyClaimedIsBroughtWithinWhatTheKeyMay) {
  const ServiceGrant batch{.best_class = kBe, .least_level = 3};
  EXPECT_EQ(settled({}, batch).service_class, kBe);
  EXPECT_EQ(settled({}, batch).level, 3);
  const ServiceGrant slow{.least_ttft = TtftRule{.base = 5s}, .least_tpot = 1s};
  const ServiceDefaults server{.slo = {.ttft = TtftRule{.base = 3s}, .tpot = 300ms}};
  EXPECT_EQ(settled({}, slow, server).slo, (Slo{TtftRule{.base = 5s}, 1s}));
  EXPECT_EQ(settled({}, slow).slo, Slo{}) << "a bound on targets is no target";
}

TEST(IgnoredFields, AreThoseThatAreClaimedAndNotRead) {
  ServiceClaim claim;
  const ServiceFields nothing{.service_class = false, .level = false, .targets = false};
  EXPECT_TRUE(ignored_fields(claim, nothing).empty());
  claim.service_class = ServiceClass::kBestEffort;
  claim.tpot = Nanos{1};
  EXPECT_EQ(ignored_fields(claim, nothing), (std::vector<std::string_view>{"class", "tpot"}));
  EXPECT_EQ(ignored_fields(claim, {.targets = false}), std::vector<std::string_view>{"tpot"});
  EXPECT_TRUE(ignored_fields(claim, {}).empty());
}

}  // namespace
}  // namespace tandem
