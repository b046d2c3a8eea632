// Products by cuBLASLt. An algorithm is chosen once for each kind (library_product.h), which has
// the numbers of rows up to a power of two; it serves all of them: a row's result is the same in
// any company within this range. If the depth is divided, its parts are added in a fixed order, so
// that results are the same in every run. The choice is the library's first suggestion, or the
// quickest of several by tune(). Products for which the library has no algorithm are left to the
// plain kernel, always.
//
// Threads: one at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/tuned_choice.h"
#include "device/cuda/cublaslt_library.h"
#include "device/cuda/gpu_timer.h"
#include "device/cuda/library_product.h"
#include "device/ops.h"

namespace tandem::device::cuda {

// "timed": algorithms are timed when a model's profile is made, and chosen by a profile that has
// such times. "first" (or nothing): always the library's first suggestion.
inline constexpr const char* kAlgorithmsVariable = "TANDEM_CUDA_ALGORITHMS";

class LibraryProducts {
 public:
  static constexpr int64_t kWorkspaceBytes = LibraryProduct::kWorkspaceBytes;
  static constexpr int kMaxAlgorithms = 8;  // that are timed for a kind
  // Noted products of a kind, each with other weights, so that the cache holds none of these.
  static constexpr size_t kMaxNoted = 64;

  // `timed`: tune() or use() may be called.
  explicit LibraryProducts(std::unique_ptr<CublasLt> library, bool timed = false)
      : library_(std::move(library)), advised_(timed ? kMaxAlgorithms : 1) {}
  LibraryProducts(const LibraryProducts&) = delete;
  LibraryProducts& operator=(const LibraryProducts&) = delete;

  // CUDA's answer to the launch; nullopt: the library does not serve the op, nothing was launched.
  std::optional<cudaError_t> launch(cudaStream_t stream, const GemmOp& op, std::byte* workspace);

  // As device/tuning.h says. The first error of CUDA that ends more than a launch is returned.
  void note_products() {
    noted_.clear();
    notes_ = true;
  }
  cudaError_t tune(cudaStream_t stream, GpuTimer& timer, std::byte* workspace, Nanos limit,
                   std::vector<TunedChoice>& choices);
  void use(std::span<const TunedChoice> choices);

  [[nodiscard]] std::string version() const { return library_->version(); }
  void forsake() { library_->forsake(); }

 private:
  using Noted = std::vector<GemmOp>;
  class Runs;

  LibraryProduct* product_for(const ProductKind& kind, const GemmOp& op);
  bool take_algorithm(const ProductKind& kind, LibraryProduct& product) const;
  std::optional<cudaError_t> launch_refused(cudaStream_t stream, const ProductKind& kind,
                                            const GemmOp& op, std::byte* workspace);
  void note(const ProductKind& kind, const GemmOp& op);
  std::optional<TunedChoice> tune_kind(const ProductKind& kind, Runs& runs);

  const std::unique_ptr<CublasLt> library_;
  std::map<ProductKind, std::unique_ptr<LibraryProduct>> products_;  // null: left to the kernel
  // The number of algorithms that the library is asked for. It stays the same, because the first of
  // another number of algorithms might differ.
  const int advised_;
  // Algorithms' names by product_name(); other products have the first algorithm.
  std::map<std::string, std::string, std::less<>> choices_;
  bool notes_ = false;
  std::map<ProductKind, Noted> noted_;
};

}  // namespace tandem::device::cuda
