// The refusals of the cuBLASLt that the host plays (cublaslt.cc).
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "cuda_on_host/product_stand.h"

namespace tandem::device::cuda {
namespace {

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
