// Products by the cuBLASLt that the host plays (tests/cuda_on_host/cublaslt.cc).
#include "device/cuda/library_products.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <tuple>
#include <vector>

#include "cuda_on_host/product_stand.h"
#include "device/cuda/cuda_device.h"
#include "support/variable.h"

namespace tandem::device::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST_F(ProductsByLibrary, AreRightForAllTypesRowsBiasesAndSums) {
  const int64_t refused = refusals();
  const int64_t before = products();
  int64_t run = 0;
  for (const ElementType type : {ElementType::kBF16, ElementType::kF32}) {
    for (const int64_t rows : {1, 2, 3, 31, 64, 65, 130}) {
      for (const bool biased : {false, true}) {
        used_ = used_before_;
        GemmOp op = gemm(type, rows, 96, 160);
        op.accumulate = rows % 2 == 1;
        op.bias = biased ? static_cast<float*>(random_elements(ElementType::kF32, 96, 4)) : nullptr;
        expect_right(op);
        ++run;
      }
    }
  }
  EXPECT_EQ(products() - before, run) << "each by the library";
  EXPECT_EQ(refusals(), refused);
}

TEST_F(ProductsByLibrary, OperandsOfAnyAlignmentAreServed) {
  const int64_t refused = refusals();
  for (const int64_t offset : {0, 4, 8, 16, 128}) {
    for (const int64_t rows : {1, 70}) {
      used_ = used_before_;
      GemmOp op = gemm(ElementType::kBF16, rows, 64, 96);
      op.x = random_elements(ElementType::kBF16, rows * op.x_stride, offset);
      op.y = random_elements(ElementType::kF32, rows * op.y_stride, offset);
      expect_right(op);
    }
  }
  EXPECT_EQ(refusals(), refused);
}

TEST_F(ProductsByLibrary, ARowIsTheSameInAnyCompanyOfItsBucket) {
  GemmOp op = gemm(ElementType::kBF16, 64, 96, 512);
  run(op);
  const std::vector<float> all = copy_of_sums(op);
  for (const int64_t rows : {33, 40, 63}) {
    op.rows = rows;
    run(op);
    EXPECT_TRUE(std::equal(sums(op), sums(op) + rows * op.y_stride, all.begin())) << rows;
  }
}

// A residual in bfloat16: the sum of fp32, rounded once.
TEST_F(ProductsByLibrary, SumsAreStoredInBFloat16) {
  const int64_t refused = refusals();
  const int64_t before = products();
  GemmOp op = gemm(ElementType::kBF16, 33, 96, 160);
  op.accumulate = true;
  auto* narrow = static_cast<BFloat16*>(random_elements(ElementType::kBF16, 33 * op.y_stride));
  auto* wide = static_cast<float*>(op.y);
  for (int64_t i = 0; i < 33 * op.y_stride; ++i) {
    wide[i] = bf16_to_f32(narrow[i]);
  }
  run(op);
  op.y = narrow;
  op.y_type = ElementType::kBF16;
  run(op);
  for (int64_t i = 0; i < 33 * op.y_stride; ++i) {
    ASSERT_EQ(narrow[i], f32_to_bf16(wide[i])) << i;
  }
  EXPECT_EQ(products() - before, 2);
  EXPECT_EQ(refusals(), refused);
}

TEST_F(ProductsByLibrary, OtherTypesOfRowsThanOfWeightsAreThePlainKernels) {
  GemmOp op = gemm(ElementType::kBF16, 5, 64, 96);
  op.x = random_elements(ElementType::kF32, 5 * op.x_stride);
  op.x_type = ElementType::kF32;
  const int64_t before = products();
  expect_right(op);
  EXPECT_EQ(products(), before);
}

TEST_F(ProductsByLibrary, GateAndUpComeInPiecesWhereTheRoomIsSmall) {
  for (const ElementType type : {ElementType::kBF16, ElementType::kF32}) {
    // The room holds 64 rows of 256 sums, or none of 32,768.
    for (const auto& [rows, n, by_library] : {std::tuple<int64_t, int64_t, bool>{64, 256, true},
                                              {65, 256, true},
                                              {150, 256, true},
                                              {2, 32768, false}}) {
      used_ = used_before_;
      const int64_t k = 64;
      GateUpOp op{.x = random_elements(type, rows * k),
                  .x_type = type,
                  .x_stride = k,
                  .rows = rows,
                  .activated_stride = n / 2 + 32};
      op.w = {.data = random_elements(type, n * k), .format = {.type = type}, .n = n, .k = k};
      op.activated = random_elements(type, rows * op.activated_stride);
      const int64_t before = products();
      run(op);
      EXPECT_EQ(products() - before, by_library ? (rows + 63) / 64 : 0);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < std::min<int64_t>(n / 2, 200); ++column) {
          const double gate = dot(op, row, column);
          const double wanted = gate / (1 + std::exp(-gate)) * dot(op, row, n / 2 + column);
          ASSERT_NEAR(value(op.activated, type, row * op.activated_stride + column), wanted,
                      type == ElementType::kF32 ? 1e-4 : 0.004 * std::abs(wanted) + 1e-4);
        }
      }
    }
  }
}

// ---------------------------------------------------------------- a device with it

TEST(CudaProducts, TheLibraryIsNamedAndSoIsItsAbsence) {
  {
    const Variable file(kLibraryVariable, CUBLASLT_ON_HOST);
    const auto device = open_cuda();
    ASSERT_TRUE(device.ok()) << device.error().message;
    EXPECT_THAT((*device)->caps().name, HasSubstr("cuBLASLt 13.0.2"));
    EXPECT_THAT((*device)->caps().identity, HasSubstr("cuBLASLt 13.0.2"));
    EXPECT_EQ((*device)->caps().kernels, "cuda-cublaslt-flashinfer");
    const Variable plain(kProductsVariable, "plain");
    const auto other = open_cuda();
    ASSERT_TRUE(other.ok());
    EXPECT_THAT((*other)->caps().name, HasSubstr("plain kernels"));
    EXPECT_EQ((*other)->caps().kernels, "cuda-plain-flashinfer");
  }
  const auto device = open_cuda();
  ASSERT_TRUE(device.ok());
  EXPECT_THAT((*device)->caps().name, HasSubstr("plain kernels, no cuBLASLt: no file is named"));
  EXPECT_EQ((*device)->caps().kernels, "cuda-plain-flashinfer");
}

// Neither products nor the end of the device wait for anything.
TEST(CudaProducts, ALostGpuEndsADeviceWithALibraryToo) {
  const Variable file(kLibraryVariable, CUBLASLT_ON_HOST);
  auto device = std::move(open_cuda()).value();
  auto memory = std::move(device->allocate(MemoryKind::kDevice, kMiB)).value();
  const StreamId stream = device->create_stream();
  GemmOp op{
      .x = memory->data(), .x_stride = 32, .rows = 4, .y = memory->data() + 65536, .y_stride = 64};
  op.w = {.data = memory->data() + 4096, .n = 64, .k = 32};
  const int64_t before = products();
  device->launch(stream, op);
  device->synchronize(device->record(stream));
  EXPECT_EQ(products(), before + 1);
  EXPECT_EQ(device->failure(), nullptr);
  cuda_on_host::fail({.in = cuda_on_host::GpuFault::In::kEvent});
  for (int i = 0; i < 3; ++i) {
    device->launch(stream, op);
    device->synchronize(device->record(stream));
    ASSERT_NE(device->failure(), nullptr);
  }
  EXPECT_EQ(products(), before + 2) << "none once the failure is known";
  memory.reset();
  device.reset();
  cuda_on_host::mend();
}

TEST(CudaProducts, WhatCannotBeHadIsRefusedWithTheCure) {
  for (const auto& [products, file, words] :
       {std::tuple{"library", "", "no file is named"},
        std::tuple{"library", "/nowhere/libcublasLt.so.13", "/nowhere/libcublasLt.so.13"},
        std::tuple{"auto", "/nowhere/libcublasLt.so.13", "/nowhere/libcublasLt.so.13"},
        std::tuple{"auto", "libm.so.6", "libm.so.6 has no cublasLtCreate"}}) {
    const Variable wanted(kProductsVariable, products);
    const Variable named(kLibraryVariable, file);
    const auto refused = open_cuda();
    ASSERT_FALSE(refused.ok()) << products << " " << file;
    EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
    EXPECT_THAT(refused.error().message,
                AllOf(HasSubstr(words), HasSubstr("pip install nvidia-cublas"),
                      HasSubstr("TANDEM_CUDA_PRODUCTS=plain")));
  }
  const Variable wrong(kProductsVariable, "fast");
  const auto refused = open_cuda();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("TANDEM_CUDA_PRODUCTS=fast: give auto"));
}

TEST(CudaKernels, AnUnknownKindIsRefused) {
  const std::tuple<const char*, const char*, const char*> wrongs[] = {
      {kKernelsVariable, "quick", "TANDEM_CUDA_KERNELS=quick: give fast or plain"},
      {kDepthVariable, "half", "TANDEM_CUDA_DEPTH=half: give auto or whole"},
      {kAlgorithmsVariable, "best", "TANDEM_CUDA_ALGORITHMS=best: give first or timed"},
      {kAttentionVariable, "fast", "TANDEM_CUDA_ATTENTION=fast: give auto"}};
  for (const auto& [name, value, words] : wrongs) {
    const Variable wrong(name, value);
    const auto refused = open_cuda();
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr(words));
  }
}

}  // namespace
}  // namespace tandem::device::cuda
