// Products by the cuBLASLt that the host plays (tests/cuda_on_host/cublaslt.cc), and the
// refusals of that library.
#include "device/cuda/library_products.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <tuple>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_ops.h"
#include "device/cuda/cuda_stream.h"
#include "support/sizes.h"
#include "support/variable.h"

namespace tandem::device::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kSumBytes = 64 << 10;  // room for gate and up

std::unique_ptr<CublasLt> played() {
  return std::move(CublasLt::open({"/nowhere/libcublasLt.so", CUBLASLT_ON_HOST})).value();
}

int64_t played_count(const char* name) {
  void* library = dlopen(CUBLASLT_ON_HOST, RTLD_NOW | RTLD_LOCAL);
  const auto count = reinterpret_cast<int64_t (*)()>(dlsym(library, name));
  const int64_t value = count();
  dlclose(library);
  return value;
}
int64_t products() { return played_count("cublaslt_on_host_products"); }
int64_t refusals() { return played_count("cublaslt_on_host_refusals"); }

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
  EXPECT_EQ(LibraryProducts::bucket_of(33), 64);
  EXPECT_EQ(LibraryProducts::bucket_of(32), 32);
  EXPECT_EQ(LibraryProducts::bucket_of(1), 1);
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

Result<std::unique_ptr<Device>> open_cuda() {
  return make_cuda_device({.accelerator = AcceleratorSpec{.backend = "cuda"},
                           .device_memory_bytes = 64 * kMiB,
                           .host_memory_bytes = 16 * kMiB});
}

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
      {kAttentionVariable, "fast", "TANDEM_CUDA_ATTENTION=fast: give auto"}};
  for (const auto& [name, value, words] : wrongs) {
    const Variable wrong(name, value);
    const auto refused = open_cuda();
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr(words));
  }
}

// ---------------------------------------------------------------- the played library

class PlayedCublasLt : public testing::Test {
 protected:
  PlayedCublasLt() : library_(played()), lt_(library_->functions()) {
    EXPECT_EQ(lt_.desc_create(&desc_, lt::ComputeType::kF32, lt::DataType::kF32),
              lt::Status::kSuccess);
    const int32_t transpose = 1;
    EXPECT_EQ(lt_.desc_set(desc_, lt::DescAttribute::kTransposeA, &transpose, sizeof(transpose)),
              lt::Status::kSuccess);
    EXPECT_EQ(lt_.preference_create(&preference_), lt::Status::kSuccess);
    const uint64_t workspace = 4 * static_cast<uint64_t>(kMiB);
    EXPECT_EQ(lt_.preference_set(preference_, lt::PreferenceAttribute::kMaxWorkspaceBytes,
                                 &workspace, sizeof(workspace)),
              lt::Status::kSuccess);
    w_ = layout(lt::DataType::kBF16, 64, 32, 64);
    x_ = layout(lt::DataType::kBF16, 64, 8, 64);
    y_ = layout(lt::DataType::kF32, 32, 8, 32);
  }
  ~PlayedCublasLt() override {
    for (const lt::Layout each : layouts_) {
      lt_.layout_destroy(each);
    }
    lt_.preference_destroy(preference_);
    lt_.desc_destroy(desc_);
  }
  lt::Layout layout(lt::DataType type, uint64_t rows, uint64_t columns, int64_t ld) {
    lt::Layout made = nullptr;
    EXPECT_EQ(lt_.layout_create(&made, type, rows, columns, ld), lt::Status::kSuccess);
    layouts_.push_back(made);
    return made;
  }
  lt::Status ask(lt::Layout w, lt::Layout x, lt::Layout y) {
    int found = 0;
    return lt_.heuristic(library_->handle(), desc_, w, x, y, y, preference_, 1, &candidate_,
                         &found);
  }
  lt::Status multiply(const void* w, void* workspace, size_t workspace_bytes) {
    const float alpha = 1;
    const float beta = 0;
    auto* x = data_.data() + 16384;
    auto* y = data_.data() + 32768;
    return lt_.matmul(library_->handle(), desc_, &alpha, w, w_, x, x_, &beta, y, y_, y, y_,
                      &candidate_.algorithm, workspace, workspace_bytes, nullptr);
  }

  const std::unique_ptr<CublasLt> library_;
  const lt::Functions& lt_;
  lt::Desc desc_ = nullptr;
  lt::Preference preference_ = nullptr;
  lt::Layout w_ = nullptr;
  lt::Layout x_ = nullptr;
  lt::Layout y_ = nullptr;
  lt::Candidate candidate_ = {};
  std::vector<lt::Layout> layouts_;
  struct alignas(256) Room {
    std::byte bytes[65536];
    std::byte* data() { return bytes; }
  } data_ = {};
};

TEST_F(PlayedCublasLt, RefusesMatricesThatDoNotFitAndTypesThatDoNotGoTogether) {
  EXPECT_EQ(ask(w_, x_, y_), lt::Status::kSuccess);
  using lt::DataType;
  using lt::Status;
  EXPECT_EQ(ask(layout(DataType::kBF16, 64, 32, 63), x_, y_), Status::kInvalidValue);
  EXPECT_EQ(ask(layout(DataType::kBF16, 32, 64, 64), x_, y_), Status::kInvalidValue);
  EXPECT_EQ(ask(w_, layout(DataType::kBF16, 60, 8, 64), y_), Status::kInvalidValue);
  EXPECT_EQ(ask(w_, x_, layout(DataType::kF32, 8, 32, 32)), Status::kInvalidValue);
  EXPECT_EQ(ask(w_, layout(DataType::kF32, 64, 8, 64), y_), Status::kNotSupported);
  EXPECT_EQ(ask(layout(DataType::kF32, 64, 32, 64), layout(DataType::kF32, 64, 8, 64),
                layout(DataType::kBF16, 32, 8, 32)),
            Status::kNotSupported);
  EXPECT_EQ(ask(w_, nullptr, y_), Status::kInvalidValue);
}

TEST_F(PlayedCublasLt, RefusesABiasWithoutAddressOrOfAnotherType) {
  const uint32_t epilogue = lt::kBiasEpilogue;
  lt_.desc_set(desc_, lt::DescAttribute::kEpilogue, &epilogue, sizeof(epilogue));
  EXPECT_EQ(ask(w_, x_, y_), lt::Status::kInvalidValue);
  const void* bias = data_.data();
  lt_.desc_set(desc_, lt::DescAttribute::kBiasPointer, &bias, sizeof(bias));
  EXPECT_EQ(ask(w_, x_, y_), lt::Status::kSuccess);
  const auto narrow = static_cast<int32_t>(lt::DataType::kBF16);
  lt_.desc_set(desc_, lt::DescAttribute::kBiasType, &narrow, sizeof(narrow));
  EXPECT_EQ(ask(w_, x_, y_), lt::Status::kNotSupported);
  EXPECT_EQ(lt_.desc_set(desc_, lt::DescAttribute::kBiasType, &narrow, 2),
            lt::Status::kInvalidValue);
}

TEST_F(PlayedCublasLt, RefusesSmallOrMisalignedWorkspacesAddressesAndAlgorithmsOfOthers) {
  ASSERT_EQ(ask(w_, x_, y_), lt::Status::kSuccess);
  ASSERT_GT(candidate_.workspace_bytes, 0U);
  std::byte* w = data_.data();
  EXPECT_EQ(multiply(w, data_.data(), candidate_.workspace_bytes - 1), lt::Status::kInvalidValue);
  EXPECT_EQ(multiply(w, data_.data() + 64, candidate_.workspace_bytes), lt::Status::kInvalidValue);
  EXPECT_EQ(multiply(w + 128, data_.data(), candidate_.workspace_bytes), lt::Status::kInvalidValue)
      << "256 is what a preference says by default";
  lt::Candidate other;
  EXPECT_EQ(lt_.check(library_->handle(), desc_, layout(lt::DataType::kBF16, 64, 32, 96), x_, y_,
                      y_, &candidate_.algorithm, &other),
            lt::Status::kNotSupported);
  candidate_.algorithm = {};
  EXPECT_EQ(multiply(w, data_.data(), candidate_.workspace_bytes), lt::Status::kNotSupported);
  const uint64_t none = 0;
  lt_.preference_set(preference_, lt::PreferenceAttribute::kMaxWorkspaceBytes, &none, sizeof(none));
  EXPECT_EQ(ask(w_, x_, y_), lt::Status::kNotSupported);
}

}  // namespace
}  // namespace tandem::device::cuda
