#include "openai/prompt_submission.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "openai/test_support.h"

namespace tandem::openai {
namespace {

// Keeps what is submitted; refuses the request number `refused`.
class KeepingFrontend final : public Frontend {
 public:
  [[nodiscard]] const ServedModel& model() const override { return model_; }
  [[nodiscard]] ServingState state() const override { return ServingState::kReady; }
  [[nodiscard]] FrontendLoad load() const override { return {}; }
  Submission submit(Request request) override {
    if (refused == std::ssize(requests)) {
      Refusal refusal;
      refusal.error = {ErrorCode::kOverloaded, "full", ""};
      refusal.reason = "why";
      return refusal;
    }
    requests.push_back(std::move(request));
    return RequestId{100 + std::ssize(requests)};
  }
  void cancel(RequestId request) override { cancelled.push_back(request); }
  void stop(RequestId request, int32_t choice) override { stopped.emplace_back(request, choice); }

  std::optional<int64_t> refused;
  std::vector<Request> requests;
  std::vector<RequestId> cancelled;
  std::vector<std::pair<RequestId, int32_t>> stopped;

 private:
  const ServedModel model_ = tiny_model();
};

class PromptSubmissionTest : public ::testing::Test {
 protected:
  GenerationRequest parse(const std::string& fields = "") {
    auto request = parse_generation(Endpoint::kCompletions,
                                    R"({"prompt":["a","bc","d"],"max_tokens":3)" + fields + "}",
                                    test_.context);
    EXPECT_TRUE(request.ok()) << request.error().message;
    return std::move(request).value();
  }
  std::variant<PromptSubmission, Refusal> submit(const GenerationRequest& generation,
                                                 const std::string& tenant = "") {
    return PromptSubmission::submit(generation, make_requests(generation, test_.model).value(),
                                    {.request_id = "id",
                                     .tenant = tenant,
                                     .sink = nullptr,
                                     .make_tag = [](size_t prompt) { return 10 + prompt; }},
                                    frontend_);
  }

  TestModel test_;
  KeepingFrontend frontend_;
};

TEST_F(PromptSubmissionTest, EachPromptIsARequestWithItsTag) {
  const auto submitted = submit(parse(), "key0");
  const auto& submission = std::get<PromptSubmission>(submitted);
  ASSERT_EQ(frontend_.requests.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(frontend_.requests[i].sink_tag, 10 + i);
    EXPECT_EQ(frontend_.requests[i].external_id, "id");
    EXPECT_EQ(frontend_.requests[i].tenant, "key0");
    EXPECT_EQ(frontend_.requests[i].sampling.max_tokens, 3);
  }
  EXPECT_EQ(frontend_.requests[1].prompt.size(), 3U);
  submission.stop(1, 2);
  ASSERT_EQ(frontend_.stopped.size(), 1U);
  EXPECT_EQ(frontend_.stopped[0], std::pair(RequestId{102}, 2));
  submission.cancel();
  EXPECT_EQ(frontend_.cancelled, (std::vector{RequestId{101}, RequestId{102}, RequestId{103}}));
}

TEST_F(PromptSubmissionTest, ASaltSetsItsPromptsApartInTheirTenant) {
  const GenerationRequest salted = parse(R"(,"cache_salt":"s")");
  submit(salted, "key0");
  EXPECT_EQ(frontend_.requests.back().tenant, "key0/s");
  submit(salted);
  EXPECT_EQ(frontend_.requests.back().tenant, "/s");
}

TEST_F(PromptSubmissionTest, ARefusalCancelsThePromptsBeforeIt) {
  frontend_.refused = 2;
  const auto submitted = submit(parse());
  const auto& refusal = std::get<Refusal>(submitted);
  EXPECT_EQ(refusal.error.code, ErrorCode::kOverloaded);
  EXPECT_EQ(refusal.reason, "why");
  EXPECT_EQ(frontend_.cancelled, (std::vector{RequestId{101}, RequestId{102}}));
}

TEST_F(PromptSubmissionTest, TheTermsOfAClaimHoldForAllPrompts) {
  GenerationRequest generation = parse();
  std::vector<Request> requests = make_requests(generation, test_.model).value();
  ServiceClaim claim;
  claim.service_class = ServiceClass::kBestEffort;
  ASSERT_TRUE(settle_service(claim, {}, {}, generation, requests).ok());
  for (const Request& request : requests) {
    EXPECT_EQ(request.service_class, ServiceClass::kBestEffort);
  }
  EXPECT_EQ(generation.service_tier, "flex");
}

TEST_F(PromptSubmissionTest, APromptThatDoesNotFitRefusesTheBody) {
  const auto generation =
      parse_generation(Endpoint::kCompletions,
                       R"({"prompt":["a",")" + std::string(64, 'b') + R"("]})", test_.context);
  ASSERT_TRUE(generation.ok());
  EXPECT_EQ(make_requests(*generation, test_.model).error().code, ErrorCode::kInvalidArgument);
}

TEST(AnswerId, IsNamedAfterItsEndpoint) {
  EXPECT_EQ(answer_id(Endpoint::kCompletions, "7"), "cmpl-7");
  EXPECT_EQ(answer_id(Endpoint::kChat, "7"), "chatcmpl-7");
}

}  // namespace
}  // namespace tandem::openai
