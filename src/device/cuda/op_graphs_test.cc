// Runs of ops as graphs, over the host's CUDA: the same results as without, whatever comes in
// whatever order, and nothing lost where CUDA refuses a graph.
#include "device/cuda/op_graphs.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "cuda_on_host/played_algorithms.h"
#include "device/cuda/cuda_device.h"
#include "observe/timeline.h"
#include "support/sizes.h"
#include "support/variable.h"

namespace tandem::device::cuda {
namespace {

using cuda_on_host::GpuFault;
using cuda_on_host::graph_launches;

// The sizes of a small layer: a norm, two products, the second added to the residual, and a cast.
struct Layer {
  static constexpr int64_t kRows = 128;
  static constexpr int64_t kWidth = 32;
  int64_t rows = 4;
  float epsilon = 1e-5F;
  bool accumulate = true;
  int64_t columns = kWidth;  // that the cast converts
};

// A device, and a layer's operands on it.
class GraphedGpu {
 public:
  // `graphs` as the variable has it.
  explicit GraphedGpu(const char* graphs, observe::Timeline* timeline = nullptr) {
    setenv(kGraphsVariable, graphs, 1);  // NOLINT(concurrency-mt-unsafe)
    auto made = make_cuda_device({.accelerator = AcceleratorSpec{.backend = "cuda"},
                                  .device_memory_bytes = 16 * kMiB,
                                  .timeline = timeline});
    unsetenv(kGraphsVariable);  // NOLINT(concurrency-mt-unsafe)
    EXPECT_TRUE(made.ok());
    device_ = std::move(made).value();
    memory_ = std::move(device_->allocate(MemoryKind::kDevice, 8 * kMiB)).value();
    stream_ = device_->create_stream();
    residual_ = take<float>(Layer::kRows * Layer::kWidth);
    normed_ = take<float>(Layer::kRows * Layer::kWidth);
    result_ = take<float>(Layer::kRows * Layer::kWidth);
    cast_ = take<BFloat16>(Layer::kRows * Layer::kWidth);
    norm_ = take<float>(Layer::kWidth);
    weights_ = take<float>(Layer::kWidth * Layer::kWidth);
    std::mt19937_64 random{3};
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    for (float* array : {norm_, weights_}) {
      for (int64_t i = 0; i < (array == norm_ ? 1 : Layer::kWidth) * Layer::kWidth; ++i) {
        array[i] = uniform(random);
      }
    }
  }

  // The layer over a residual drawn from `seed`: its results.
  std::vector<float> run(const Layer& layer, uint64_t seed, bool attends = false) {
    launch(layer, seed, attends);
    device_->synchronize(device_->record(stream_));
    std::vector<float> left(residual_, residual_ + Layer::kRows * Layer::kWidth);
    for (int64_t i = 0; i < Layer::kRows * Layer::kWidth; ++i) {
      left.push_back(bf16_to_f32(cast_[i]));
    }
    return left;
  }
  Device& device() { return *device_; }

 private:
  template <class T>
  T* take(int64_t count) {
    used_ = (used_ + 255) / 256 * 256;
    T* piece = reinterpret_cast<T*>(memory_->data() + used_);
    used_ += count * static_cast<int64_t>(sizeof(T));
    return piece;
  }

  // With `attends` the run is divided by an op that no graph takes.
  void launch(const Layer& layer, uint64_t seed, bool attends) {
    constexpr int64_t kWidth = Layer::kWidth;
    std::mt19937_64 random{seed};
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    for (int64_t i = 0; i < Layer::kRows * kWidth; ++i) {
      residual_[i] = uniform(random);
      cast_[i] = BFloat16{};
    }
    const WeightMatrix weights = {
        .data = weights_, .format = {.type = ElementType::kF32}, .n = kWidth, .k = kWidth};
    device_->launch(stream_, RmsNormOp{.x = residual_,
                                       .x_stride = kWidth,
                                       .rows = layer.rows,
                                       .hidden = kWidth,
                                       .weight = norm_,
                                       .epsilon = layer.epsilon,
                                       .y = normed_,
                                       .y_type = ElementType::kF32,
                                       .y_stride = kWidth});
    const auto product = [&](float* x, float* y, bool accumulate) {
      device_->launch(stream_, GemmOp{.x = x,
                                      .x_type = ElementType::kF32,
                                      .x_stride = kWidth,
                                      .rows = layer.rows,
                                      .w = weights,
                                      .y = y,
                                      .y_stride = kWidth,
                                      .accumulate = accumulate});
    };
    product(normed_, result_, false);
    if (attends) {
      device_->launch(stream_, CopyOp{normed_, result_, kWidth * int64_t{sizeof(float)}});
    }
    product(attends ? normed_ : result_, residual_, layer.accumulate);
    device_->launch(stream_, CastOp{.x = residual_,
                                    .x_stride = kWidth,
                                    .rows = layer.rows,
                                    .columns = layer.columns,
                                    .y = cast_,
                                    .y_stride = kWidth});
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Memory> memory_;
  StreamId stream_{};
  int64_t used_ = 0;
  float* residual_ = nullptr;
  float* normed_ = nullptr;
  float* result_ = nullptr;
  BFloat16* cast_ = nullptr;
  float* norm_ = nullptr;
  float* weights_ = nullptr;
};

class Graphs : public testing::Test {
 protected:
  ~Graphs() override { cuda_on_host::mend(); }
  // Graphs launched by `work`.
  static int64_t launched(const auto& work) {
    const int64_t before = graph_launches();
    work();
    return graph_launches() - before;
  }
};

TEST_F(Graphs, ARunIsOneWhenItComesForTheThirdTime) {
  GraphedGpu plain("off");
  GraphedGpu gpu("layers");
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const std::vector<float> wanted = plain.run({}, seed);
    std::vector<float> got;
    EXPECT_EQ(launched([&] { got = gpu.run({}, seed); }), seed < 2 ? 0 : 1) << seed;
    EXPECT_EQ(got, wanted);
  }
  EXPECT_EQ(launched([&] { plain.run({}, 1); }), 0);
}

// Runs with the same operands that differ in one number each.
TEST_F(Graphs, NoRunIsTakenForAnother) {
  const std::vector<Layer> layers = {
      {},           {.rows = 5}, {.epsilon = 0.5F}, {.accumulate = false}, {.columns = 8},
      {.rows = 64}, {.rows = 65}};
  GraphedGpu plain("off");
  GraphedGpu gpu("layers");
  std::mt19937_64 random{7};
  const int64_t graphs = launched([&] {
    for (uint64_t seed = 0; seed < 400; ++seed) {
      const Layer& layer = layers[random() % layers.size()];
      const bool attends = random() % 4 == 0;
      ASSERT_EQ(gpu.run(layer, seed, attends), plain.run(layer, seed, attends)) << seed;
    }
  });
  EXPECT_GT(graphs, 200);
}

TEST_F(Graphs, RunsOfManyRowsAreNone) {
  GraphedGpu gpu("layers");
  EXPECT_EQ(launched([&] {
              for (uint64_t seed = 0; seed < 8; ++seed) {
                gpu.run({.rows = OpGraphs::kMaxRows + 1}, seed);
              }
            }),
            0);
}

TEST_F(Graphs, CapturesAreSpreadOverRuns) {
  GraphedGpu gpu("layers");
  const auto all = [&](uint64_t seed) {
    return launched([&] {
      for (int64_t rows = 1; rows <= 4; ++rows) {
        gpu.run({.rows = rows}, seed);
      }
    });
  };
  EXPECT_EQ(all(0), 0);
  EXPECT_EQ(all(1), 0);
  EXPECT_EQ(all(2), 1);  // the first is captured; the next capture comes eight runs later
  EXPECT_EQ(all(3), 1);
  EXPECT_EQ(all(4), 2);
}

// A graph holds the algorithms with which it was captured.
TEST_F(Graphs, AreMadeAgainOnceAlgorithmsHaveBeenChosen) {
  const Variable library(kLibraryVariable, CUBLASLT_ON_HOST);
  const Variable timed(kAlgorithmsVariable, "timed");
  const PlayedAlgorithms algorithms;
  GraphedGpu plain("off");
  GraphedGpu gpu("layers");
  const std::vector<float> usual = plain.run({}, 1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(gpu.run({}, 1), usual);
  }
  algorithms.only_quick(1);
  for (GraphedGpu* each : {&plain, &gpu}) {
    each->device().tuning()->begin();
    each->run({}, 1);
    const auto choices = each->device().tuning()->end(std::chrono::seconds(20));
    ASSERT_TRUE(choices.ok());
    ASSERT_FALSE(choices->empty());
    EXPECT_EQ(choices->front().choice, 1);
  }
  const std::vector<float> chosen = plain.run({}, 1);
  EXPECT_NE(chosen, usual);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(launched([&] { EXPECT_EQ(gpu.run({}, 1), chosen); }), i < 2 ? 0 : 1) << i;
  }
}

// Refused when it is made, or when it is brought to the GPU.
TEST_F(Graphs, WithoutMemoryForAGraphOpsAreLaunchedOneByOne) {
  for (const int64_t refused : {1, 2}) {
    GraphedGpu plain("off");
    GraphedGpu gpu("layers");
    cuda_on_host::fail({.in = GpuFault::In::kGraph, .at = refused});
    EXPECT_EQ(launched([&] {
                for (uint64_t seed = 0; seed < 30; ++seed) {
                  ASSERT_EQ(gpu.run({}, seed), plain.run({}, seed)) << seed;
                }
              }),
              0);
    ASSERT_EQ(gpu.device().failure(), nullptr) << gpu.device().failure()->message;
  }
}

TEST_F(Graphs, AGraphServesOnWhenNoMoreCanBeMade) {
  GraphedGpu plain("off");
  GraphedGpu gpu("layers");
  cuda_on_host::fail({.in = GpuFault::In::kGraph, .at = 3});
  const int64_t graphs = launched([&] {
    for (uint64_t seed = 0; seed < 30; ++seed) {
      ASSERT_EQ(gpu.run({}, seed), plain.run({}, seed)) << seed;
      ASSERT_EQ(gpu.run({.rows = 7}, seed), plain.run({.rows = 7}, seed)) << seed;
    }
  });
  EXPECT_EQ(graphs, 28);  // only the first run became a graph
  ASSERT_EQ(gpu.device().failure(), nullptr) << gpu.device().failure()->message;
}

TEST_F(Graphs, SomeMemoryIsLeftToTheLibraries) {
  GraphedGpu gpu("layers");
  cuda_on_host::pretend({.free_bytes = OpGraphs::kReserveBytes - 1});
  EXPECT_EQ(launched([&] {
              for (uint64_t seed = 0; seed < 8; ++seed) {
                gpu.run({}, seed);
              }
            }),
            0);
  cuda_on_host::pretend({});
}

TEST_F(Graphs, AGpuThatFailsInAGraphFails) {
  for (const GpuFault::In in : {GpuFault::In::kKernel, GpuFault::In::kLaunch}) {
    GraphedGpu gpu("layers");
    for (uint64_t seed = 0; seed < 5; ++seed) {
      gpu.run({}, seed);
    }
    cuda_on_host::fail({.in = in});
    gpu.run({}, 5);
    ASSERT_NE(gpu.device().failure(), nullptr);
    cuda_on_host::mend();
  }
}

TEST_F(Graphs, ATimelineShowsOpsOneByOne) {
  observe::Timeline timeline(100);
  GraphedGpu gpu("layers", &timeline);
  EXPECT_EQ(launched([&] {
              for (uint64_t seed = 0; seed < 8; ++seed) {
                gpu.run({}, seed);
              }
            }),
            0);
}

TEST_F(Graphs, AWrongValueIsRefused) {
  setenv(kGraphsVariable, "steps", 1);  // NOLINT(concurrency-mt-unsafe)
  const auto made = make_cuda_device({.accelerator = AcceleratorSpec{.backend = "cuda"}});
  unsetenv(kGraphsVariable);  // NOLINT(concurrency-mt-unsafe)
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message,
              testing::HasSubstr("TANDEM_CUDA_GRAPHS=steps: give off or layers"));
}

}  // namespace
}  // namespace tandem::device::cuda
