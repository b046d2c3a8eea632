// What a node plans on machines with several memory nodes, from a shape alone.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "device/cpu/machine.h"
#include "model/make.h"
#include "node/config_json.h"
#include "node/planned_model.h"
#include "node/time_profile.h"

namespace tandem {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// One node with all CPUs, and one of memory alone.
device::Topology with_far_memory() {
  const std::vector<int32_t> cpus = device::allowed_cpus();
  const auto cores = static_cast<int32_t>(cpus.size());
  return {
      {.id = 0, .cpus = cpus, .cores = cores, .memory_bytes = 400 * kMiB, .free_bytes = 100 * kMiB},
      {.id = 1, .cpus = {}, .cores = 0, .memory_bytes = 400 * kMiB, .free_bytes = 400 * kMiB}};
}

model::ModelFolder tiny_folder() {
  model::ModelFolder folder;
  folder.config = model::preset_config("tiny").value();
  return folder;
}

Result<SoleModel> plan(NodeOptions options, std::optional<model::WeightFormats> stored = {}) {
  model::ModelFolder folder = tiny_folder();
  folder.stored = std::move(stored);
  const SteadyClock clock;
  return plan_model(std::move(folder), options, clock);
}

TEST(NodePlan, MemoryOfTheNodesThatComputeIsWhatCountsByDefault) {
  NodeOptions options;
  options.device.topology = with_far_memory();
  const auto near = plan(options);
  ASSERT_TRUE(near.ok()) << near.error().message;
  EXPECT_EQ(near->model.plan.memory_bytes, 80 * kMiB);
  EXPECT_NE(effective_config_json(options, near->model).find("\"numa_nodes\":[{\"node\":0"),
            std::string::npos);

  options.device.numa.mode = device::NumaMode::kOff;
  const auto all = plan(options);
  ASSERT_TRUE(all.ok()) << all.error().message;
  EXPECT_GT(all->model.plan.memory_bytes, 80 * kMiB);
  EXPECT_EQ(effective_config_json(options, all->model).find("numa_nodes"), std::string::npos);
}

TEST(NodePlan, MoreThanTheNodesHaveMayBeAskedFor) {
  NodeOptions options;
  options.device.topology = with_far_memory();
  options.memory_bytes = 150 * kMiB;
  const auto more = plan(options);
  ASSERT_TRUE(more.ok()) << more.error().message;
  EXPECT_EQ(more->model.plan.memory_bytes, 150 * kMiB);
}

TEST(NodePlan, ANodeThatIsNotThereIsRefusedBeforeAnythingIsPlanned) {
  NodeOptions options;
  options.device.topology = with_far_memory();
  options.device.numa = {.mode = device::NumaMode::kNodes, .nodes = {1}};
  const auto refused = plan(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().param, "numa");
}

// A device without cuBLASLt, and a back end that is not there.
TEST(NodePlan, IfTheGpuIsNotTakenTheCpusGetAllOtherOptions) {
  for (const char* backend : {device::kEmulatedBackend, "/nowhere/libtandem_gpu.so"}) {
    NodeOptions options;
    options.memory_bytes = 150 * kMiB;
    options.end_tokens = {5, 7};
    options.accelerator = device::AcceleratorSpec{.backend = backend};
    options.host_memory_bytes = 64 * kMiB;
    options.automatic_gpu = AutomaticGpu{};
    const SteadyClock clock;
    const auto opened = plan_model(tiny_folder(), options, clock);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_EQ(opened->model.device.caps().backend, "cpu");
    EXPECT_EQ(opened->model.plan.memory_bytes, 150 * kMiB);
    EXPECT_TRUE(opened->model.plan.host.rows.empty());
    EXPECT_FALSE(options.accelerator.has_value());
    EXPECT_FALSE(options.automatic_gpu.has_value());
    EXPECT_EQ(options.host_memory_bytes, 0);
    EXPECT_EQ(options.end_tokens, (std::vector<TokenId>{TokenId{5}, TokenId{7}}));
  }
}

TEST(NodePlan, IfAnOptionAsksForTheGpuItsErrorIsTheAnswer) {
  NodeOptions options;
  options.memory_bytes = 150 * kMiB;
  options.accelerator = device::AcceleratorSpec{.backend = "/nowhere/libtandem_gpu.so"};
  options.host_memory_bytes = 64 * kMiB;
  options.automatic_gpu = AutomaticGpu{.required_by = "host-memory"};
  const SteadyClock clock;
  const auto refused = plan_model(tiny_folder(), options, clock);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("--host-memory is for two tiers"), std::string::npos);
}

// As a file has them: all of layer 0 as int4, or a part of it as int8.
model::WeightFormats stored_formats(Quantization of_down) {
  model::WeightFormats formats(device::weight_format(ElementType::kBF16, Quantization::kInt4));
  formats.origin = "gguf";
  formats.tensors = {{"model.layers.0.mlp.down_proj.weight", of_down},
                     {"model.layers.0.self_attn.o_proj.weight", Quantization::kInt4},
                     {"model.layers.1.mlp.down_proj.weight", Quantization::kInt8}};
  return formats;
}

TEST(NodePlan, WhatBecameOfAFilesQuantisedWeightsIsInTheConfiguration) {
  const auto quantization = [](const NodeOptions& options,
                               const std::optional<model::WeightFormats>& stored) {
    const auto planned = plan(options, stored);
    EXPECT_TRUE(planned.ok()) << planned.error().message;
    const auto json = nlohmann::json::parse(effective_config_json(options, planned->model));
    return json["quantization"].get<std::string>() + " " + json["weights"].get<std::string>();
  };
  const auto stored = stored_formats(Quantization::kInt4);
  NodeOptions options;
  EXPECT_EQ(quantization(options, stored), "auto gguf int4+int8");
  EXPECT_EQ(quantization(options, std::nullopt), "auto bfloat16");
  options.dtype = ElementType::kF32;
  EXPECT_EQ(quantization(options, stored), "none float32");
}

TEST(NodePlan, ProfilesTellMixturesOfTheSameKindsApart) {
  const auto identity = [](const std::optional<model::WeightFormats>& stored) {
    const NodeOptions options;
    const auto planned = plan(options, stored);
    EXPECT_TRUE(planned.ok()) << planned.error().message;
    return identity_of(options, planned->model);
  };
  const latency::ProfileIdentity narrow = identity(stored_formats(Quantization::kInt4));
  const latency::ProfileIdentity other = identity(stored_formats(Quantization::kInt8));
  EXPECT_TRUE(narrow.dtype.starts_with("gguf int4+int8, mixture ")) << narrow.dtype;
  EXPECT_FALSE(latency::check_fits({.identity = narrow}, other).ok());
  EXPECT_NE(latency::identity_digest(narrow), latency::identity_digest(other));
  EXPECT_EQ(narrow.dtype, identity(stored_formats(Quantization::kInt4)).dtype);
  EXPECT_EQ(identity(std::nullopt).dtype, "bfloat16") << "as in files of before";
}

}  // namespace
}  // namespace tandem
