// Test help: products by the cuBLASLt that the host plays.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "cuda_on_host/played_algorithms.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_ops.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/library_products.h"
#include "support/sizes.h"

namespace tandem::device::cuda {

inline constexpr int64_t kSumBytes = 64 << 10;  // room for gate and up

inline std::unique_ptr<CublasLt> played() {
  return std::move(CublasLt::open({"/nowhere/libcublasLt.so", CUBLASLT_ON_HOST})).value();
}

inline int64_t products() { return played_call<int64_t>("cublaslt_on_host_products"); }
inline int64_t refusals() { return played_call<int64_t>("cublaslt_on_host_refusals"); }

// A stream with rooms, and memory from which operands are taken.
class ProductsByLibrary : public testing::Test {
 protected:
  ProductsByLibrary() : stream_(rooms_) {
    EXPECT_EQ(cudaMalloc(&memory_, static_cast<size_t>(kBytes)), cudaSuccess);
    rooms_.library = std::make_unique<LibraryProducts>(played());
    const int64_t room = LibraryProducts::kWorkspaceBytes + kSumBytes;
    rooms_.products.place(take<std::byte>(room), room);
    EXPECT_EQ(stream_.make(StreamKind::kCompute), cudaSuccess);
    used_before_ = used_;
  }
  ~ProductsByLibrary() override {
    EXPECT_EQ(stream_.end(), cudaSuccess);
    EXPECT_EQ(cudaFree(memory_), cudaSuccess);
  }

  template <class T>
  T* take(int64_t count, int64_t offset = 0) {
    used_ = (used_ + 255) / 256 * 256 + offset;
    T* piece = reinterpret_cast<T*>(static_cast<std::byte*>(memory_) + used_);
    used_ += count * static_cast<int64_t>(sizeof(T));
    EXPECT_LE(used_, kBytes);
    return piece;
  }
  void* random_elements(ElementType type, int64_t count, int64_t offset = 0) {
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    auto* data = take<std::byte>(count * element_bytes(type), offset);
    for (int64_t i = 0; i < count; ++i) {
      if (type == ElementType::kF32) {
        reinterpret_cast<float*>(data)[i] = uniform(random_);
      } else {
        reinterpret_cast<BFloat16*>(data)[i] = f32_to_bf16(uniform(random_));
      }
    }
    return data;
  }
  static double value(const void* data, ElementType type, int64_t i) {
    return static_cast<double>(type == ElementType::kF32
                                   ? static_cast<const float*>(data)[i]
                                   : bf16_to_f32(static_cast<const BFloat16*>(data)[i]));
  }
  template <class Product>
  static double dot(const Product& op, int64_t row, int64_t n) {
    double sum = 0;
    for (int64_t k = 0; k < op.w.k; ++k) {
      sum += value(op.x, op.x_type, row * op.x_stride + k) *
             value(op.w.data, op.w.format.type, n * op.w.k + k);
    }
    return sum;
  }
  void run(const Op& op) {
    EXPECT_EQ(stream_.launch(op), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
  }
  GemmOp gemm(ElementType type, int64_t rows, int64_t n, int64_t k) {
    GemmOp op{.x = random_elements(type, rows * (k + 32)),
              .x_type = type,
              .x_stride = k + 32,
              .rows = rows,
              .y = random_elements(ElementType::kF32, rows * (n + 7)),
              .y_stride = n + 7};
    op.w = {.data = random_elements(type, n * k), .format = {.type = type}, .n = n, .k = k};
    return op;
  }
  static const float* sums(const GemmOp& op) { return static_cast<const float*>(op.y); }
  static std::vector<float> copy_of_sums(const GemmOp& op) {
    return {sums(op), sums(op) + op.rows * op.y_stride};
  }
  void expect_right(const GemmOp& op) {
    const std::vector<float> before = copy_of_sums(op);
    run(op);
    for (int64_t row = 0; row < op.rows; ++row) {
      for (int64_t n = 0; n < op.y_stride; ++n) {
        const auto at = static_cast<size_t>(row * op.y_stride + n);
        if (n >= op.w.n) {
          ASSERT_EQ(sums(op)[at], before[at]) << "beyond the columns";
          continue;
        }
        const double wanted = dot(op, row, n) +
                              (op.bias == nullptr ? 0.0 : static_cast<double>(op.bias[n])) +
                              (op.accumulate ? static_cast<double>(before[at]) : 0.0);
        ASSERT_NEAR(sums(op)[at], wanted, 2e-5) << row << " " << n;
      }
    }
  }

  static constexpr int64_t kBytes = 64 * kMiB;
  void* memory_ = nullptr;
  int64_t used_ = 0;
  int64_t used_before_ = 0;
  StreamRooms rooms_;
  CudaStream stream_;
  std::mt19937_64 random_{11};
};

inline Result<std::unique_ptr<Device>> open_cuda() {
  return make_cuda_device({.accelerator = AcceleratorSpec{.backend = "cuda"},
                           .device_memory_bytes = 64 * kMiB,
                           .host_memory_bytes = 16 * kMiB});
}

}  // namespace tandem::device::cuda
