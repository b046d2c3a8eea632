#include "node/run_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "model/make.h"
#include "node/config_json.h"
#include "node/planned_model.h"
#include "node/time_profile.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RunKernelsTest : public ::testing::Test {
 protected:
  RunKernelsTest() {
    std::string pattern = (fs::temp_directory_path() / "tandem_kernels_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    options_.kernels_folder = folder_ / "cache";
    shape_ = *model::preset_config("tiny");
  }
  ~RunKernelsTest() override { fs::remove_all(folder_); }
  [[nodiscard]] RunKernels find(ElementType type = ElementType::kBF16) const {
    return find_kernels(options_, shape_, device::WeightFormat{.type = type});
  }
  static std::string usual() {
    return std::string(kernels::isa_name(kernels::available_isas().back()));
  }

  fs::path folder_;
  NodeOptions options_;
  model::ModelConfig shape_;
};

TEST_F(RunKernelsTest, WhatIsAskedForIsTakenWithoutMeasuring) {
  options_.device.isa = kernels::Isa::kRef;
  const RunKernels run = find();
  EXPECT_EQ(run.choice, kernels::Choice(kernels::Isa::kRef));
  EXPECT_FALSE(run.products);
}

TEST_F(RunKernelsTest, TheModelsLargestProductIsMeasured) {
  const RunKernels run = find();
  EXPECT_FALSE(run.choice);
  ASSERT_TRUE(run.products);
  EXPECT_EQ(run.products->n, 2 * shape_.intermediate);
  EXPECT_EQ(run.products->k, shape_.hidden);
  EXPECT_GT(run.products->weight_bytes, 0);
  options_.accelerator = device::AcceleratorSpec{};
  options_.accelerator->hollow = true;
  EXPECT_FALSE(find().products) << "a hollow device multiplies nothing";
}

TEST_F(RunKernelsTest, RoundedActivationsOfFilesAreMeasuredApart) {
  model::WeightFormats formats(
      device::weight_format(ElementType::kBF16, Quantization::kInt8, Activations::kPlain));
  formats.tensors["lm_head.weight"] = Quantization::kInt8;
  const RunKernels plain = find_kernels(options_, shape_, formats);
  formats.activations = Activations::kInt8;
  const RunKernels rounded = find_kernels(options_, shape_, formats);
  ASSERT_TRUE(plain.products && rounded.products);
  EXPECT_EQ(plain.products->activations, Activations::kPlain);
  EXPECT_EQ(rounded.products->activations, Activations::kInt8);
  EXPECT_NE(plain.kept, rounded.kept);
}

TEST_F(RunKernelsTest, WhatWasMeasuredHoldsForLaterStarts) {
  device::AcceleratorCaps caps;
  caps.kernels = "ref";
  const RunKernels first = find();
  settle_kernels(first, caps);
  EXPECT_FALSE(fs::exists(first.kept)) << "nothing was measured";
  caps.kernel_why = "figures";
  EXPECT_THAT(settle_kernels(first, caps), HasSubstr("figures"));
  const RunKernels later = find();
  EXPECT_EQ(later.choice, kernels::Choice(kernels::Isa::kRef));
  EXPECT_THAT(later.from, HasSubstr(first.kept.string()));
  // Of this shape and these threads only.
  EXPECT_FALSE(find(ElementType::kF32).choice);
  options_.device.threads = 7;
  EXPECT_FALSE(find().choice);
}

TEST_F(RunKernelsTest, AFileThatIsNoneIsMeasuredAnew) {
  const fs::path kept = find().kept;
  fs::create_directories(kept.parent_path());
  for (const char* text : {"", "x", "[]", "{}", R"({"kernels":7})", R"({"kernels":"sse"})",
                           R"({"kernels":"neon"})", R"({"kernels":"ref:4,avx2"})"}) {
    if (text == std::string_view(R"({"kernels":"neon"})") && usual() == "neon") {
      continue;
    }
    std::ofstream(kept) << text;
    EXPECT_FALSE(find().choice) << text;
  }
}

TEST_F(RunKernelsTest, AFolderThatCannotBeWrittenIsNoError) {
  std::ofstream(folder_ / "file") << "x";
  options_.kernels_folder = folder_ / "file" / "cache";
  device::AcceleratorCaps caps;
  caps.kernel_why = "figures";
  EXPECT_THAT(settle_kernels(find(), caps), HasSubstr("figures"));
}

TEST_F(RunKernelsTest, IdentityAndConfigurationNameTheKernels) {
  const kernels::Isa isa = kernels::available_isas().back();
  options_.device.isa = kernels::Choice(isa);
  options_.device.isa->products = {{4, isa}};
  model::ModelFolder folder;
  folder.config = shape_;
  const SteadyClock clock;
  const auto planned = plan_model(std::move(folder), options_, clock);
  ASSERT_TRUE(planned.ok()) << planned.error().message;
  const std::string text = usual() + ":4," + usual();
  EXPECT_EQ(identity_of(options_, planned->model).isa, text);
  const auto config = nlohmann::json::parse(effective_config_json(options_, planned->model));
  EXPECT_EQ(config["isa"], text);
  EXPECT_EQ(config["isa_chosen"], "as asked for");
}

}  // namespace
}  // namespace tandem
