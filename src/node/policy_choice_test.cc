#include "node/policy_choice.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/make.h"
#include "node/node_device.h"
#include "scheduler/policies/hygen.h"

namespace tandem {
namespace {

using latency::Batch;
using latency::BatchLimits;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// A step takes `fixed` and `per_row` for each row.
class Machine final : public latency::BatchMeter {
 public:
  Machine(Nanos fixed, Nanos per_row) : fixed_(fixed), per_row_(per_row) {}
  [[nodiscard]] BatchLimits limits() const override { return limits_; }
  Result<Nanos> measure(const Batch& batch) override {
    RETURN_IF_ERROR(check_batch(batch, limits_));
    ++measured_;
    return fixed_ + batch.shape().rows() * per_row_;
  }

  BatchLimits limits_{.rows = 2048, .sequences = 64, .context = 1024, .tokens = 1 << 20};
  int measured_ = 0;

 private:
  const Nanos fixed_;
  const Nanos per_row_;
};

int32_t budget_of(Nanos fixed, Nanos per_row) {
  Machine machine(fixed, per_row);
  return measure_step_budget(machine).value().tokens;
}

TEST(StepBudget, IsTheLargestThatKeepsDecodesSmooth) {
  EXPECT_EQ(budget_of(milliseconds(1), microseconds(10)), 512);
  EXPECT_EQ(budget_of(milliseconds(20), microseconds(300)), 256);
  EXPECT_EQ(budget_of(milliseconds(20), microseconds(700)), 64);
}

TEST(StepBudget, OfASlowModelGoesByItsDecodes) {
  EXPECT_EQ(budget_of(milliseconds(500), milliseconds(3)), 256);  // 1.27 s beside 3 x 503 ms
  EXPECT_EQ(budget_of(milliseconds(500), milliseconds(300)), 64) << "never less";
}

TEST(StepBudget, StaysWithinWhatAStepMayHave) {
  Machine machine(milliseconds(1), microseconds(1));
  for (const int32_t rows : {1, 16, 100, 300}) {
    machine.limits_.rows = rows;
    EXPECT_LE(measure_step_budget(machine).value().tokens, rows);
  }
  machine.limits_ = {.rows = 512, .sequences = 1, .context = 4, .tokens = 64};
  EXPECT_EQ(measure_step_budget(machine).value().tokens, 64) << "no prompt fits: unmeasured";
}

TEST(StepBudget, TakesFewSteps) {
  Machine fast(milliseconds(1), microseconds(10));
  ASSERT_TRUE(measure_step_budget(fast).ok());
  EXPECT_LE(fast.measured_, 15);
  Machine slow(milliseconds(500), milliseconds(30));
  ASSERT_TRUE(measure_step_budget(slow).ok());
  EXPECT_LE(slow.measured_, 3);
}

TEST(OptionsWithoutEffect, AreThoseThatThePolicyDoesNotRead) {
  NodeOptions options;
  options.policy_options[kPsmUtility] = 50;
  EXPECT_TRUE(options_without_effect(options).empty()) << "no policy is chosen yet";
  options.policy = "hygen";
  EXPECT_TRUE(options_without_effect(options).empty());
  options.policy = "omniserve";
  const std::vector<std::string> lines = options_without_effect(options);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(lines.front().starts_with("--psm-utility 50 has no effect: the policy omniserve"));
  EXPECT_NE(lines.front().find("hygen"), std::string::npos);
  options.policy_options[kPsmUtility] = kPsmUtility.default_value;
  EXPECT_TRUE(options_without_effect(options).empty());
}

TEST(OptionsWithoutEffect, IncludeAHostThatThePolicyDoesNotUse) {
  NodeOptions options;
  options.policy = "sarathi";
  EXPECT_TRUE(options_without_effect(options).empty());
  options.accelerator.emplace();
  options.host_memory_bytes = 1 << 20;
  EXPECT_EQ(options_without_effect(options).size(), 1U);
  options.policy = "piggyback";
  EXPECT_TRUE(options_without_effect(options).empty());
}

PolicyChoice chosen(const NodeOptions& options) {
  NodeOptions plain;
  plain.device.threads = 1;
  plain.device.isa = kernels::Choice(kernels::Isa::kRef);
  const model::ModelConfig shape = model::preset_config("tiny").value();
  const std::unique_ptr<NodeDevice> device =
      NodeDevice::open(plain, shape, device::WeightFormat{.type = ElementType::kF32}).value();
  return choose_automatic_policy(options,
                                 {.device = *device, .folder = {.path = {}, .config = shape}});
}

TEST(AutomaticPolicy, KnowsClassesAndReadsTargetsWhereThereAreAny) {
  NodeOptions options;
  EXPECT_TRUE(is_automatic(options));
  EXPECT_EQ(chosen(options).policy, "sarathi");
  options.targets_given = true;
  EXPECT_EQ(chosen(options).policy, "omniserve");
  options.targets_given = false;
  options.profile.file = "/nowhere/profile.json";
  EXPECT_EQ(chosen(options).policy, "omniserve") << "it is measured and written there";
  options.profile.model = latency::TimeModel::kTable;
  EXPECT_EQ(chosen(options).policy, "sarathi") << "omniserve cannot plan by that model";
  options = {};
  options.accelerator.emplace();
  EXPECT_EQ(chosen(options).policy, "piggyback");
}

TEST(AutomaticPolicy, WhereAllRequestsAreAlikeIsFirstComeFirstServed) {
  NodeOptions options;
  choose_plain_policy(options);
  EXPECT_EQ(options.policy, "accel_only");
  options.policy = "sarathi";
  choose_plain_policy(options);
  EXPECT_EQ(options.policy, "sarathi") << "named by the operator";
}

}  // namespace
}  // namespace tandem
