#include "node/refusal.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

std::string told(Nanos target) {
  return describe_refusal({.ttft = target}, {.answer = AdmissionAnswer::kRefuse,
                                             .reason = RefusalReason::kFirstToken,
                                             .ttft = milliseconds(30),
                                             .retry_after = milliseconds(10)})
      .error.message;
}

TEST(Refusal, NamesTheTargetHoweverShort) {
  EXPECT_NE(told(milliseconds(20)).find("its target is 20.0 ms"), std::string::npos);
  EXPECT_NE(told(microseconds(100)).find("its target is 0.1 ms"), std::string::npos);
  EXPECT_NE(told(microseconds(10)).find("its target is 10.00 us"), std::string::npos)
      << told(microseconds(10));
}

}  // namespace
}  // namespace tandem
