// What a node plans on machines with several memory nodes, from a shape alone.
#include <gtest/gtest.h>

#include <string>

#include "device/cpu/machine.h"
#include "model/make.h"
#include "node/config_json.h"
#include "node/planned_model.h"

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

Result<SoleModel> plan(NodeOptions options) {
  const auto config = model::preset_config("tiny");
  CHECK(config.ok(), "{}", config.error().message);
  model::ModelFolder folder;
  folder.config = *config;
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

}  // namespace
}  // namespace tandem
