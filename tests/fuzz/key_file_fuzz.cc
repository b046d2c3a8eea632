// A file of API keys with what each may claim.
#include "api/key_file.h"

#include "fuzz/fuzz.h"

namespace tandem {
TANDEM_FUZZ_TARGET(input) {
  const Result<std::vector<api::ApiKey>> keys = api::parse_key_file(input, "keys");
  if (!keys.ok()) {
    CHECK(!keys.error().message.empty());
    return;
  }
  CHECK(!keys->empty());
  for (const api::ApiKey& key : *keys) {
    CHECK(!key.key.empty() && key.key.front() != '#');
    // A request without claims is never refused, and stays within the limits of the key.
    const Result<ServiceTerms> terms = settle({}, key.grant, {}, 1000);
    CHECK(terms.ok(), "{}", terms.error().message);
    CHECK(terms->level >= key.grant.least_level);
    CHECK(!terms->slo.ttft || terms->slo.ttft->target(1000) > Nanos{0});
    CHECK(!terms->slo.tpot || !key.grant.least_tpot || *terms->slo.tpot >= *key.grant.least_tpot);
    CHECK(!terms->slo.ttft || parse_ttft_rule(format_ttft_rule(*terms->slo.ttft)).ok());
  }
}
}  // namespace tandem
