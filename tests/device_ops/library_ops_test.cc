// Products by a library against the device's own plain kernels, on one device after the other: what
// the back end reads of TANDEM_CUDA_PRODUCTS decides. Prints the largest relative differences as a
// line of JSON. Skipped where the device finds no library.
#include <fmt/format.h>

#include <cstdlib>

#include "device_under_test.h"
#include "gemm_sources.h"

namespace tandem::device {
namespace {

constexpr const char* kProducts = "TANDEM_CUDA_PRODUCTS";
constexpr const char* kLibrary = "TANDEM_CUBLASLT";

struct ProductShape {
  int64_t rows;
  int64_t n;
  int64_t k;
};
constexpr ProductShape kProductShapes[] = {{1, 96, 160},   {2, 512, 1024},  {3, 96, 160},
                                           {8, 512, 1024}, {17, 512, 1024}, {64, 96, 160},
                                           {130, 512, 96}, {300, 96, 1024}};

// One device, opened with the products of a kind.
class Side {
 public:
  explicit Side(const char* products) {
    const char* before = std::getenv(kProducts);  // NOLINT(concurrency-mt-unsafe)
    const std::string kept = before == nullptr ? "" : before;
    setenv(kProducts, products, 1);  // NOLINT(concurrency-mt-unsafe)
    auto opened = open({.accelerator = wanted_device(),
                        .device_memory_bytes = kMemory + 2 * kStaging,
                        .host_memory_bytes = 2 * kStaging});
    setenv(kProducts, kept.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    if (!opened.ok()) {
      why_ = opened.error().message;
      return;
    }
    device_ = std::move(opened).value();
    memory_ = std::move(device_->allocate(MemoryKind::kDevice, kMemory)).value();
    staging_ = std::move(device_->allocate(MemoryKind::kHostPinned, kStaging)).value();
    stream_ = device_->create_stream();
  }
  ~Side() {
    memory_.reset();
    staging_.reset();
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  [[nodiscard]] const std::string& why_not() const { return why_; }
  [[nodiscard]] Device& device() { return *device_; }

  void run(const Op& op) {
    device_->launch(stream_, op);
    device_->synchronize(device_->record(stream_));
    ASSERT_EQ(device_->failure(), nullptr) << device_->failure()->message;
  }
  void clear() { used_ = 0; }
  std::byte* take(int64_t bytes) {
    used_ = (used_ + 255) / 256 * 256;
    std::byte* piece = memory_->data() + used_;
    used_ += bytes;
    CHECK(used_ <= kMemory, "{} bytes of operands", used_);
    return piece;
  }
  std::byte* bring(const std::vector<std::byte>& bytes) {
    const auto count = static_cast<int64_t>(bytes.size());
    std::byte* piece = take(count);
    std::memcpy(staging_->data(), bytes.data(), bytes.size());
    run(CopyOp{piece, staging_->data(), count});
    return piece;
  }
  std::vector<std::byte> fetch(const std::byte* piece, int64_t bytes) {
    run(CopyOp{staging_->data(), piece, bytes});
    return {staging_->data(), staging_->data() + bytes};
  }

 private:
  static constexpr int64_t kMemory = int64_t{64} << 20;
  static constexpr int64_t kStaging = int64_t{8} << 20;
  std::string why_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Memory> staging_;
  StreamId stream_{};
  int64_t used_ = 0;
};

std::vector<std::byte> random_elements(kernels::Random& random, ElementType type, int64_t count) {
  std::vector<std::byte> bytes(static_cast<size_t>(count * element_bytes(type)));
  for (int64_t i = 0; i < count; ++i) {
    kernels::put(bytes.data(), type, i, kernels::uniform(random, -1.0F, 1.0F));
  }
  return bytes;
}

class LibraryOps : public testing::Test {
 protected:
  LibraryOps() {
    if (std::getenv(kLibrary) == nullptr &&  // NOLINT(concurrency-mt-unsafe)
        wanted_device().backend == CUDA_ON_HOST_PLUGIN) {
      setenv(kLibrary, CUBLASLT_ON_HOST, 1);  // NOLINT(concurrency-mt-unsafe)
    }
    library_ = std::make_unique<Side>("library");
    plain_ = std::make_unique<Side>("plain");
  }

  // What a product gives on one side: fp32, or `type` for gate and up.
  std::vector<std::byte> product(Side& side, const ProductShape& shape, ElementType type,
                                 bool gate_up) {
    kernels::Random random{static_cast<uint64_t>(shape.rows * 1000 + shape.n)};
    side.clear();
    WeightMatrix w = side.device().formats().matrix({.type = type}, shape.n, shape.k);
    w.data = side.bring(random_elements(random, type, shape.n * shape.k));
    const std::byte* x = side.bring(random_elements(random, type, shape.rows * shape.k));
    if (gate_up) {
      const int64_t bytes = shape.rows * shape.n / 2 * element_bytes(type);
      std::byte* activated = side.take(bytes);
      side.run(GateUpOp{.x = x,
                        .x_type = type,
                        .x_stride = shape.k,
                        .rows = shape.rows,
                        .w = w,
                        .activated = activated,
                        .activated_stride = shape.n / 2});
      return side.fetch(activated, bytes);
    }
    const auto* bias = reinterpret_cast<const float*>(
        side.bring(random_elements(random, ElementType::kF32, shape.n)));
    std::byte* y = side.bring(random_elements(random, ElementType::kF32, shape.rows * shape.n));
    side.run(GemmOp{.x = x,
                    .x_type = type,
                    .x_stride = shape.k,
                    .rows = shape.rows,
                    .w = w,
                    .bias = shape.rows % 2 == 0 ? bias : nullptr,
                    .y = reinterpret_cast<float*>(y),
                    .y_stride = shape.n,
                    .accumulate = shape.rows % 3 == 0});
    return side.fetch(y, shape.rows * shape.n * 4);
  }

  double largest_difference(ElementType type, bool gate_up) {
    double largest = 0;
    for (const ProductShape& shape : kProductShapes) {
      const ElementType out = gate_up ? type : ElementType::kF32;
      const std::vector<std::byte> got = product(*library_, shape, type, gate_up);
      const std::vector<std::byte> bytes = product(*plain_, shape, type, gate_up);
      std::vector<float> values;
      std::vector<double> wanted;
      for (int64_t i = 0; i < static_cast<int64_t>(got.size()) / element_bytes(out); ++i) {
        values.push_back(kernels::get(got.data(), out, i));
        wanted.push_back(static_cast<double>(kernels::get(bytes.data(), out, i)));
      }
      largest = std::max(largest, kernels::relative_error(values, wanted));
    }
    return largest;
  }

  std::unique_ptr<Side> library_;
  std::unique_ptr<Side> plain_;
};

TEST_F(LibraryOps, AgreeWithThePlainKernels) {
  ASSERT_EQ(plain_->why_not(), "");
  if (!library_->why_not().empty()) {
    GTEST_SKIP() << library_->why_not();
  }
  EXPECT_NE(library_->device().caps().kernels, plain_->device().caps().kernels);
  std::string differences;
  for (const ElementType type : {ElementType::kBF16, ElementType::kF32}) {
    for (const bool gate_up : {false, true}) {
      const double found = largest_difference(type, gate_up);
      EXPECT_LT(found, gate_up && type == ElementType::kBF16 ? 5e-3 : 1e-5);
      differences += fmt::format("{}\"{} {}\": {:.2e}", differences.empty() ? "" : ", ",
                                 gate_up ? "gate_up" : "gemm", element_name(type), found);
    }
  }
  fmt::print("{{\"library_differs_from_plain\": {{{}}}}}\n", differences);
}

}  // namespace
}  // namespace tandem::device
