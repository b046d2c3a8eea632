// Algorithms of products that are chosen by time. The host plays cuBLASLt.
#include <gmock/gmock.h>

#include <chrono>
#include <vector>

#include "cuda_on_host/product_stand.h"
#include "device/cuda/op_graphs.h"
#include "support/variable.h"

namespace tandem::device::cuda {
namespace {

using testing::HasSubstr;

class TimedProducts : public ProductsByLibrary {
 protected:
  TimedProducts() { reopen(); }
  // Each algorithm adds in another order if the depth is large. The other sizes are small, so that
  // delays decide which is quick.
  std::vector<float> sums_of(const GemmOp& op) {
    run(op);
    return copy_of_sums(op);
  }
  std::vector<TunedChoice> tune(Nanos limit = std::chrono::seconds(20)) {
    std::vector<TunedChoice> choices;
    EXPECT_EQ(stream_.tune(limit, choices), cudaSuccess);
    return choices;
  }
  // Times the algorithms of the op's kind while algorithm `quick` alone is quick.
  std::vector<TunedChoice> tune(const GemmOp& op, int quick) {
    algorithms_.only_quick(quick);
    library().note_products();
    run(op);
    return tune();
  }
  LibraryProducts& library() { return *rooms_.library; }
  void reopen() { rooms_.library = std::make_unique<LibraryProducts>(played(), true); }

  const PlayedAlgorithms algorithms_;
};

TEST_F(TimedProducts, TheQuickestAlgorithmServesFromThenOnAndAfterAStartWithTheChoices) {
  const int64_t refused = refusals();
  const GemmOp op = gemm(ElementType::kBF16, 4, 8, 512);
  const std::vector<float> usual = sums_of(op);
  algorithms_.only_quick(2);
  library().note_products();
  EXPECT_EQ(sums_of(op), usual) << "noting changes nothing";
  const std::vector<TunedChoice> choices = tune();
  ASSERT_EQ(choices.size(), 1U);
  EXPECT_EQ(
      choices[0].work,
      "product 8x512 bfloat16 to float32, strides 544 15, aligned 256 256 256 0, 3 to 4 rows");
  EXPECT_EQ(choices[0].choice, 2);
  EXPECT_LT(choices[0].us, choices[0].usual_us);
  const std::vector<float> chosen = sums_of(op);
  EXPECT_NE(chosen, usual);
  expect_right(op);
  reopen();
  EXPECT_EQ(sums_of(op), usual) << "without the choices";
  reopen();
  library().use(choices);
  EXPECT_EQ(sums_of(op), chosen);
  GemmOp other = op;
  other.rows = 3;
  expect_right(other);
  EXPECT_EQ(refusals(), refused);
}

TEST_F(TimedProducts, WeightsAreTakenInTurnAndOnlyNotedKindsAreTimed) {
  const int64_t before = products();
  library().note_products();
  std::vector<GemmOp> layers;
  for (int i = 0; i < 3; ++i) {
    layers.push_back(gemm(ElementType::kBF16, 4, 32, 64));
    run(layers.back());
    run(layers.back());
  }
  EXPECT_EQ(tune().size(), 1U) << "one kind";
  EXPECT_GT(products() - before, 6 + 4 * 2);
  run(gemm(ElementType::kBF16, 9, 32, 64));
  EXPECT_TRUE(tune().empty()) << "nothing has been noted since";
  for (const GemmOp& each : layers) {
    expect_right(each);
  }
}

TEST_F(TimedProducts, AnAlgorithmThatDoesNotRunIsNotTaken) {
  const GemmOp op = gemm(ElementType::kBF16, 5, 32, 64);
  library().note_products();
  run(op);
  algorithms_.only_quick(3);
  algorithms_.broken(3);
  const std::vector<TunedChoice> choices = tune();
  ASSERT_EQ(choices.size(), 1U);
  EXPECT_NE(choices[0].choice, 3);
  expect_right(op);
}

TEST_F(TimedProducts, WithOneAlgorithmOrNoTimeTheFirstServes) {
  const GemmOp op = gemm(ElementType::kBF16, 5, 32, 64);
  const std::vector<float> usual = sums_of(op);
  algorithms_.only_quick(1);
  library().note_products();
  run(op);
  EXPECT_TRUE(tune(Nanos{-1}).empty());
  algorithms_.advise(1);
  library().note_products();
  run(op);
  EXPECT_TRUE(tune().empty());
  GemmOp again = op;
  again.accumulate = false;
  EXPECT_EQ(sums_of(again), usual);
}

// A profile may name what this library has not got.
TEST_F(TimedProducts, AChoiceThatIsNotThereIsTheFirst) {
  const GemmOp op = gemm(ElementType::kBF16, 5, 32, 64);
  const std::vector<float> usual = sums_of(op);
  const TunedChoice wrong{.work = product_name(*product_kind(op)), .way = "0123", .choice = 1};
  library().use(std::vector{wrong, TunedChoice{.work = "product of nothing", .choice = 1}});
  EXPECT_EQ(sums_of(op), usual);
}

// The library may refuse at a launch an algorithm that it has checked.
TEST_F(TimedProducts, AChoiceThatIsRefusedAtALaunchIsTheFirstFromThenOn) {
  const GemmOp op = gemm(ElementType::kBF16, 4, 8, 512);
  const std::vector<float> usual = sums_of(op);
  const std::vector<TunedChoice> choices = tune(op, 2);
  reopen();
  library().use(choices);
  algorithms_.broken(2);
  EXPECT_EQ(sums_of(op), usual);
  algorithms_.broken(0);
  const int64_t before = products();
  expect_right(op);
  expect_right(op);
  EXPECT_EQ(products(), before) << "the plain kernel";
}

TEST_F(TimedProducts, AProductThatIsRefusedWhileItIsNotedIsNotTimed) {
  const GemmOp op = gemm(ElementType::kBF16, 5, 32, 64);
  algorithms_.broken(0);
  library().note_products();
  expect_right(op);
  EXPECT_TRUE(tune().empty());
  expect_right(op);
}

TEST_F(TimedProducts, ChoiceZeroIsTheSameAlgorithmAfterAStart) {
  const GemmOp op = gemm(ElementType::kBF16, 4, 8, 512);
  const std::vector<TunedChoice> choices = tune(op, 0);
  ASSERT_EQ(choices.size(), 1U);
  EXPECT_EQ(choices[0].choice, 0);
  const std::vector<float> before = sums_of(op);
  reopen();
  library().use(choices);
  EXPECT_EQ(sums_of(op), before);
}

TEST_F(TimedProducts, NotesEndWhereTheyBeginAnew) {
  const GemmOp op = gemm(ElementType::kBF16, 5, 32, 64);
  library().note_products();
  run(op);
  library().note_products();
  EXPECT_TRUE(tune().empty()) << "the memory of earlier operands may be gone";
}

class TunedDevice : public testing::Test {
 protected:
  TunedDevice() {
    auto device = open_cuda();
    EXPECT_TRUE(device.ok());
    device_ = std::move(device).value();
    memory_ = std::move(device_->allocate(MemoryKind::kDevice, kMiB)).value();
    stream_ = device_->create_stream();
    op_ = {.x = memory_->data(),
           .x_stride = 32,
           .rows = 4,
           .y = memory_->data() + 65536,
           .y_stride = 64};
    op_.w = {.data = memory_->data() + 4096, .n = 64, .k = 32};
  }
  void run() {
    device_->launch(stream_, op_);
    device_->synchronize(device_->record(stream_));
  }

  const Variable file_{kLibraryVariable, CUBLASLT_ON_HOST};
  const Variable timed_{kAlgorithmsVariable, "timed"};
  const Variable graphs_{kGraphsVariable, "layers"};
  const PlayedAlgorithms algorithms_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Memory> memory_;
  StreamId stream_{};
  GemmOp op_;
};

TEST_F(TunedDevice, ChoosesByTimeOnRequest) {
  EXPECT_THAT(device_->caps().identity, HasSubstr("timed algorithms"));
  ASSERT_NE(device_->tuning(), nullptr);
  algorithms_.only_quick(1);
  device_->tuning()->begin();
  run();
  const Result<std::vector<TunedChoice>> choices = device_->tuning()->end(std::chrono::seconds(20));
  ASSERT_TRUE(choices.ok());
  ASSERT_EQ(choices->size(), 1U);
  EXPECT_EQ(choices->front().choice, 1);
  run();
  EXPECT_EQ(device_->failure(), nullptr);
}

TEST_F(TunedDevice, ThatIsLostSaysSo) {
  device_->tuning()->begin();
  run();
  cuda_on_host::fail({.in = cuda_on_host::GpuFault::In::kEvent});
  const auto lost = device_->tuning()->end(std::chrono::seconds(20));
  ASSERT_FALSE(lost.ok());
  EXPECT_THAT(lost.error().message, HasSubstr("timing the algorithms of products"));
  EXPECT_FALSE(device_->tuning()->end(std::chrono::seconds(20)).ok());
  memory_.reset();
  device_.reset();
  cuda_on_host::mend();
}

TEST(CudaProducts, AlgorithmsAreNotTimedUnasked) {
  const Variable file(kLibraryVariable, CUBLASLT_ON_HOST);
  EXPECT_EQ((*open_cuda())->tuning(), nullptr);
  const Variable timed(kAlgorithmsVariable, "timed");
  EXPECT_NE((*open_cuda())->tuning(), nullptr);
  const Variable plain(kProductsVariable, "plain");
  EXPECT_EQ((*open_cuda())->tuning(), nullptr) << "there is no library";
}

}  // namespace
}  // namespace tandem::device::cuda
