// A whole model, from its files to its logits, on two memory nodes: made up of this machine's CPUs,
// both with the memory of its first node, so that everything runs that runs on a real pair.
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "device/cpu/machine.h"
#include "device/cpu/pages.h"
#include "model/make.h"
#include "model/model_folder.h"
#include "model/weights.h"
#include "support/step_driver.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using device::kHugePageBytes;
using device::Topology;
using reference::Rig;
using reference::RigOptions;

Topology one_node() {
  constexpr int64_t kSome = int64_t{1} << 30;
  const std::vector<int32_t> cpus = device::allowed_cpus();
  const auto cores = static_cast<int32_t>(cpus.size());
  return {{.id = 0, .cpus = cpus, .cores = cores, .memory_bytes = kSome, .free_bytes = kSome}};
}

Topology two_nodes() {
  Topology nodes = one_node();
  nodes.push_back(nodes.front());
  nodes[0].cpus = {nodes[0].cpus.front()};
  nodes[1].cpus = {nodes[1].cpus.back()};
  nodes[0].cores = 1;
  nodes[1].cores = 1;
  return nodes;
}

// As the kernel, but binding is forbidden, as in most containers.
class Forbidding final : public device::PagePlacer {
 public:
  [[nodiscard]] bool has_policy_of_its_own() const override { return false; }
  [[nodiscard]] bool prefer(std::byte* /*data*/, int64_t /*bytes*/,
                            int32_t /*node*/) const override {
    return false;
  }
  void touch(std::byte* data, int64_t bytes, std::span<const int32_t> cpus) const override {
    ++touched;
    device::kernel_placer().touch(data, bytes, cpus);
  }
  mutable int32_t touched = 0;
};

// Large enough that its products are divided and its weights take several huge pages.
class TwoNodes : public testing::TestWithParam<ElementType> {
 protected:
  static void SetUpTestSuite() {
    folder_ = fs::temp_directory_path() / ("tandem_numa_" + std::to_string(getpid()));
    const auto shape = model::preset_config("tiny");
    ASSERT_TRUE(shape.ok());
    model::ModelConfig config = *shape;
    config.layers = 2;
    config.hidden = 768;
    config.intermediate = 2304;
    config.heads = 8;
    config.kv_heads = 4;
    config.head_dim = 64;
    config.vocabulary = 4096;
    const Status made =
        model::make_model({.config = config, .seed = 3, .on_progress = {}}, folder_);
    ASSERT_TRUE(made.ok()) << made.error().message;
  }
  static void TearDownTestSuite() { fs::remove_all(folder_); }

  static RigOptions options(Topology topology) {
    RigOptions options;
    options.type = GetParam();
    options.threads = 4;
    options.topology = std::move(topology);
    return options;
  }
  static Rig rig(const RigOptions& options) {
    const auto opened = model::open_model_folder(folder_);
    CHECK(opened.ok(), "{}", opened.error().message);
    return make_rig(opened->config, options, [&](device::Device& device) {
      auto weights = model::load_weights(
          folder_, opened->config, device,
          {.format = device::WeightFormat{.type = options.type}, .on_progress = {}});
      CHECK(weights.ok(), "{}", weights.error().message);
      return std::move(weights).value();
    });
  }
  static std::vector<float> logits(const Rig& on) {
    std::vector<TokenId> prompt;
    for (int32_t i = 0; i < 300; ++i) {
      prompt.push_back(static_cast<TokenId>(i * 7919 % 4096));
    }
    reference::SequenceMaker maker(on.executor->limits());
    reference::Sequence sequence = maker.make(prompt, 306);
    std::vector<float> all = reference::prefill(*on.executor, sequence, 128);
    const std::vector<float> decoded = reference::decode(*on.executor, sequence, 5);
    all.insert(all.end(), decoded.begin(), decoded.end());
    return all;
  }

  static inline fs::path folder_;
};

TEST_P(TwoNodes, AnswersAreThoseOfOneNodeBitForBit) {
  const std::vector<float> one = logits(rig(options(one_node())));
  EXPECT_EQ(logits(rig(options(two_nodes()))), one);
  RigOptions three_threads = options(two_nodes());
  three_threads.threads = 3;
  EXPECT_EQ(logits(rig(three_threads)), one);
}

TEST_P(TwoNodes, WhereBindingIsForbiddenWeightsAreTouchedAndAnswersStay) {
  const Forbidding placer;
  RigOptions forbidden = options(two_nodes());
  forbidden.placer = &placer;
  EXPECT_EQ(logits(rig(forbidden)), logits(rig(options(one_node()))));
  EXPECT_GT(placer.touched, 4);
}

// Whether the page prefers a node, by a binding of its own.
bool is_bound(const void* page) {
  int mode = -1;
  CHECK(syscall(SYS_get_mempolicy, &mode, nullptr, 0L, page, MPOL_F_ADDR) == 0, "{}", errno);
  return mode == MPOL_PREFERRED;
}

TEST_P(TwoNodes, WeightsAreReallyBoundOnSeveralNodesAndOnOneAreLeftAlone) {
  const auto probe = device::Pages::map(kHugePageBytes);
  ASSERT_TRUE(probe.has_value());
  if (!device::kernel_placer().prefer(probe->data(), kHugePageBytes, 0)) {
    GTEST_SKIP() << "the kernel refuses mbind: " << std::strerror(errno);
  }
  const auto middle = [](const device::WeightMatrix& matrix) {
    return static_cast<const std::byte*>(matrix.data) + matrix.stored_bytes / 2;
  };
  const Rig two = rig(options(two_nodes()));
  const Rig one = rig(options(one_node()));
  EXPECT_TRUE(is_bound(middle(two.weights->embedding)));
  EXPECT_TRUE(is_bound(middle(two.weights->layers[1].gate_up)));
  EXPECT_FALSE(is_bound(middle(one.weights->embedding)));
  EXPECT_FALSE(is_bound(middle(one.weights->layers[1].gate_up)));
}

INSTANTIATE_TEST_SUITE_P(Numa, TwoNodes, testing::Values(ElementType::kF32, ElementType::kBF16),
                         [](const auto& own) { return std::string(element_name(own.param)); });

}  // namespace
}  // namespace tandem
